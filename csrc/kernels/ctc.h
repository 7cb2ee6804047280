/* kernels/ctc.h: the loss of connectionist temporal classification, of one sequence, and its slope.
 *
 * With l(s) the blank for even s and target s / 2 for odd ones, s in [0, 2 L], and x the logarithms of probabilities:
 *
 *     alpha[0][0] = x[0][blank], alpha[0][1] = x[0][l(1)]
 *     alpha[t][s] = x[t][l(s)] + log of the sum of e^alpha[t - 1] at s, s - 1, and at s - 2 where s is odd and
 *                   l(s) is not l(s - 2)
 *     loss        = -log of the sum of e^alpha[T - 1] at 2 L and 2 L - 1
 *
 * beta is the same from the end. The slope of x is that of logits in front of a log_softmax, as in torch: e^x less the
 * probability that a path is at the class. Arrays: x and slope [frames][classes], alpha [frames][2 L + 1]. */
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef struct ds_ctc {
    const double *x;
    const int64_t *targets; /* [n_targets], below n_classes */
    size_t n_frames, n_classes, n_targets;
    int64_t blank;
} ds_ctc;

/* Fills alpha and returns the loss: infinite where no path fits. */
double ds_ctc_loss(const ds_ctc *c, double *alpha);
/* Fills slope with that of `scale` times the loss. beta: room for 2 (2 L + 1) numbers. */
void ds_ctc_slope(const ds_ctc *c, const double *alpha, double loss, double scale, double *beta,
                  double *slope);
