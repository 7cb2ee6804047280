"""Enhancement of spectra as its authors write it: sub-bands, complex layers, cumulative norms, Fourier bases."""

import numpy as np
import pytest
import torch
from architectures import check
from torch import nn

F = nn.functional


class SubBands(nn.Module):
    """FullSubNet: a network of all bands, then one of each with its neighbours; norms over the frames so far."""

    def __init__(self, bins, neighbours, look_ahead=2):
        super().__init__()
        self.full = nn.LSTM(bins, 8, batch_first=True)
        self.all_bands = nn.Linear(8, bins)
        self.sub = nn.LSTM(2 * neighbours + 2, 6, batch_first=True)
        self.mask = nn.Linear(6, 2)
        self.neighbours, self.look_ahead = neighbours, look_ahead

    @staticmethod
    def unfold(input, num_neighbor):
        assert input.dim() == 4, f"The dim of input is {input.dim()}. It should be four dim."
        batch_size, num_channels, num_freqs, num_frames = input.size()
        if num_neighbor <= 0:
            return input.permute(0, 2, 1, 3).reshape(batch_size, num_freqs, num_channels, 1, num_frames)
        output = input.reshape(batch_size * num_channels, 1, num_freqs, num_frames)
        size = num_neighbor * 2 + 1
        output = F.pad(output, [0, 0, num_neighbor, num_neighbor], mode="reflect")
        output = F.unfold(output, (size, num_frames))
        assert output.shape[-1] == num_freqs, f"n_freqs != N (sub_band), {num_freqs} != {output.shape[-1]}"
        output = output.reshape(batch_size, num_channels, size, num_frames, num_freqs)
        return output.permute(0, 4, 1, 2, 3).contiguous()

    @staticmethod
    def norm(input):
        batch_size, num_channels, num_freqs, num_frames = input.size()
        input = input.reshape(batch_size * num_channels, num_freqs, num_frames)
        cumulative_sum = torch.cumsum(torch.sum(input, dim=1), dim=-1)
        entry_count = torch.arange(num_freqs, num_freqs * num_frames + 1, num_freqs, dtype=input.dtype)
        entry_count = entry_count.reshape(1, num_frames).expand_as(cumulative_sum)
        cum_mean = (cumulative_sum / entry_count).reshape(batch_size * num_channels, 1, num_frames)
        return (input / (cum_mean + 1e-5)).reshape(batch_size, num_channels, num_freqs, num_frames)

    def forward(self, noisy):
        noisy = F.pad(noisy.abs(), [0, self.look_ahead])
        batch_size, num_channels, num_freqs, num_frames = noisy.size()
        x = self.norm(noisy).reshape(batch_size, num_channels * num_freqs, num_frames)
        x = self.all_bands(self.full(x.permute(0, 2, 1).contiguous())[0]).permute(0, 2, 1).contiguous()
        x = self.unfold(F.relu(x).reshape(batch_size, 1, num_freqs, num_frames), 0)
        x = x.reshape(batch_size, num_freqs, 1, num_frames)
        bands = self.unfold(noisy, self.neighbours)
        bands = bands.reshape(batch_size, num_freqs, self.neighbours * 2 + 1, num_frames)
        x = self.norm(torch.cat([bands, x], dim=2))
        x = x.reshape(batch_size * num_freqs, self.neighbours * 2 + 2, num_frames)
        x = self.mask(self.sub(x.permute(0, 2, 1))[0]).permute(0, 2, 1).contiguous()
        mask = x.reshape(batch_size, num_freqs, 2, num_frames).permute(0, 2, 1, 3).contiguous()
        return mask[:, :, :, self.look_ahead :]


class ComplexConv(nn.Module):
    def __init__(self, layer, i, o, *sizes):
        super().__init__()
        self.real, self.imag = layer(i // 2, o // 2, *sizes), layer(i // 2, o // 2, *sizes)

    def forward(self, x):
        real, imag = torch.chunk(x, 2, 1)
        return torch.cat([self.real(real) - self.imag(imag), self.real(imag) + self.imag(real)], 1)


class Complex(nn.Module):
    """DCCRN: Fourier transforms as convolutions, complex layers, LSTMs of either part, polar masks."""

    def __init__(self, n=16, hop=4):
        super().__init__()
        basis, window = np.fft.rfft(np.eye(n)), np.hanning(n) + 0.1
        basis = np.concatenate([basis.real, basis.imag], 1).T
        self.register_buffer("analysis", torch.tensor(basis * window)[:, None].float())
        self.register_buffer("synthesis", torch.tensor(np.linalg.pinv(basis).T * window)[:, None].float())
        self.register_buffer("window", torch.tensor(window).float()[None, :, None])
        self.register_buffer("enframe", torch.eye(n)[:, None])
        self.n, self.hop = n, hop
        self.encoder = ComplexConv(nn.Conv2d, 2, 4, (5, 2), (2, 1), (2, 0))
        self.norm = nn.BatchNorm2d(4)
        self.lstm = nn.ModuleList([nn.LSTM(8, 8), nn.LSTM(8, 8)])
        self.decoder = ComplexConv(nn.ConvTranspose2d, 8, 2, (5, 2), (2, 1), (2, 0), (1, 0))

    def transform(self, x):
        x = F.pad(x.unsqueeze(1), [self.n - self.hop, self.n - self.hop])
        return torch.chunk(F.conv1d(x, self.analysis, stride=self.hop), 2, 1)

    def back(self, x):
        x = F.conv_transpose1d(x, self.synthesis, stride=self.hop)
        t = self.window.repeat(1, 1, (x.size(-1) - self.n) // self.hop + 1) ** 2
        x = x / (F.conv_transpose1d(t, self.enframe, stride=self.hop) + 1e-8)
        return x[..., self.n - self.hop : -(self.n - self.hop)].squeeze(1)

    def forward(self, x):
        real, imag = self.transform(x)
        mags, phase = torch.sqrt(real**2 + imag**2 + 1e-8), torch.atan2(imag, real)
        kept = out = F.elu(self.norm(self.encoder(F.pad(torch.stack([real, imag], 1)[:, :, 1:], [1, 0]))))
        batch_size, channels, dims, lengths = out.size()
        parts = [
            torch.reshape(p, [lengths, batch_size, channels // 2 * dims])
            for p in torch.chunk(out.permute(3, 0, 1, 2), 2, 2)
        ]
        (rr, ii), (ri, ir) = ([m(p)[0] for m, p in zip(ms, parts)] for ms in (self.lstm, self.lstm[::-1]))
        out = torch.cat([
            torch.reshape(p, [lengths, batch_size, channels // 2, dims]) for p in (rr - ii, ir + ri)
        ], 2).permute(1, 2, 3, 0)  # fmt: skip
        parts = [p for x in zip(torch.chunk(out, 2, 1), torch.chunk(kept, 2, 1)) for p in x]
        out = F.pad(self.decoder(torch.cat(parts, 1))[..., 1:], [0, 0, 1, 0])
        size = (out[:, 0] ** 2 + out[:, 1] ** 2) ** 0.5
        angle = phase + torch.atan2(out[:, 1] / (size + 1e-8), out[:, 0] / (size + 1e-8))
        mags = torch.tanh(size) * mags
        return torch.clamp_(self.back(torch.cat([mags * torch.cos(angle), mags * torch.sin(angle)], 1)), -1, 1)


class Cumulative(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gain, self.bias = nn.Parameter(torch.ones(1, c, 1)), nn.Parameter(torch.zeros(1, c, 1))

    def forward(self, x):
        b, c, t = x.size()
        total, power = torch.cumsum(x.sum(1), dim=1), torch.cumsum(x.pow(2).sum(1), dim=1)
        count = torch.arange(c, c * (t + 1), c, dtype=x.dtype, device=x.device).view(1, -1).expand_as(total)
        mean = total / count
        std = ((power - 2 * mean * total) / count + mean.pow(2) + 1e-5).sqrt()
        x = (x - mean.unsqueeze(1).expand_as(x)) / std.unsqueeze(1).expand_as(x)
        return x * self.gain.expand_as(x).type(x.type()) + self.bias.expand_as(x).type(x.type())


class Glance(nn.Module):
    """GaGNet: gated blocks with cumulative norms give gains, the rest is added to the coarse spectrum."""

    def __init__(self, bins):
        super().__init__()

        def branch():
            layers = nn.PReLU(), Cumulative(4), nn.ConstantPad1d((8, 0), 0.0), nn.Conv1d(4, 4, 5, dilation=2)
            return nn.Sequential(*layers)

        self.first, self.last = nn.Conv1d(bins, 4, 1), nn.Conv1d(4, bins, 1)
        self.left, self.right = branch(), nn.Sequential(*branch(), nn.Sigmoid())

    def forward(self, x):
        size, phase = torch.norm(x, dim=1), torch.atan2(x[:, -1, ...], x[:, 0, ...])
        y = self.first(size.transpose(1, 2))
        size = torch.sigmoid(self.last(self.left(y) * self.right(y))).transpose(1, 2) * size
        return torch.stack((size * torch.cos(phase), size * torch.sin(phase)), dim=1) + x


@pytest.mark.parametrize(
    "model, dims, lengths, delay",
    [
        (lambda: SubBands(9, 2), ("B", 1, 9, "L"), (40, 11, 1), 2),
        (Complex, ("B", "L"), (160, 64), 19),
        (lambda: Glance(5), ("B", 2, "L", 5), (25, 9, 1), 0),
    ],
)
def test_by_hand(model, dims, lengths, delay):
    torch.manual_seed(0)
    assert check(model(), dims, lengths, max(lengths) // 4) == [delay]
