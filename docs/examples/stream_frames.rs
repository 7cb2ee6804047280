//! stream_frames.rs - frames from standard input go through a model, and what is final goes to standard output.
//!
//!     rustc -O stream_frames.rs -L LIB -l dreamstream -C link-arg=-Wl,-rpath,LIB
//!     ./stream_frames MODEL.dsm < frames_in > frames_out
//!
//! LIB is what `python -m dreamstream.config --libs` names behind -L. For models with one input and one output.

use std::ffi::{c_char, c_void, CStr, CString};
use std::io::{Read, Write};
use std::marker::PhantomData;
use std::ptr::{null, null_mut};

/// The declarations of dreamstream.h that are used here. Handles are opaque; an empty enum stands for one.
mod c {
    use super::{c_char, c_void};

    pub enum Model {}
    pub enum Stream {}

    #[repr(C)]
    pub struct Input {
        pub data: *const c_void,
        pub n_frames: usize,
        pub dtype: i32,
    }

    #[repr(C)]
    pub struct Output {
        pub data: *const c_void,
        pub n_frames: usize,
        pub start: i64,
    }

    #[repr(C)]
    pub struct PortInfo {
        pub struct_size: usize,
        pub name: *const c_char,
        pub dtype: i32,
        pub rank: u32,
        pub shape: *const i64,
        pub frame_bytes: usize,
        pub rate_num: i64,
        pub rate_den: i64,
        pub delay: i64,
    }

    pub const ABI: u32 = 1;
    pub const END: u32 = 2;

    extern "C" {
        pub fn ds_abi_version() -> u32;
        pub fn ds_last_error() -> *const c_char;
        pub fn ds_model_load(model: *mut *mut Model, path: *const c_char, options: *const c_void) -> i32;
        pub fn ds_model_close(model: *mut Model) -> i32;
        pub fn ds_model_input(model: *mut Model, index: usize, info: *mut PortInfo) -> i32;
        pub fn ds_model_output(model: *mut Model, index: usize, info: *mut PortInfo) -> i32;
        pub fn ds_stream_open(stream: *mut *mut Stream, model: *mut Model) -> i32;
        pub fn ds_stream_close(stream: *mut Stream) -> i32;
        pub fn ds_stream_step(stream: *mut Stream, out: *mut Output, input: *const Input, flags: u32) -> i32;
    }
}

/// A status becomes a Result. The message belongs to the thread that failed, so it is copied here and now.
fn check(status: i32) -> Result<(), String> {
    match status {
        0 => Ok(()),
        _ => Err(unsafe { CStr::from_ptr(c::ds_last_error()) }.to_string_lossy().into_owned()),
    }
}

struct Model(*mut c::Model);

impl Model {
    fn load(path: &str) -> Result<Model, String> {
        let path = CString::new(path).map_err(|error| error.to_string())?;
        let mut model = null_mut();
        check(unsafe { c::ds_model_load(&mut model, path.as_ptr(), null()) })?;
        Ok(Model(model))
    }

    fn frame_bytes(&self, output: bool) -> Result<usize, String> {
        let mut info: c::PortInfo = unsafe { std::mem::zeroed() };
        info.struct_size = std::mem::size_of::<c::PortInfo>();
        let query = if output { c::ds_model_output } else { c::ds_model_input };
        check(unsafe { query(self.0, 0, &mut info) })?;
        Ok(info.frame_bytes)
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { c::ds_model_close(self.0) };
    }
}

/// A stream does not outlive its model, and is used by one thread at a time: the pointer keeps it from being Sync.
struct Stream<'model> {
    handle: *mut c::Stream,
    frame_bytes: usize,
    model: PhantomData<&'model Model>,
}

impl<'model> Stream<'model> {
    fn open(model: &'model Model) -> Result<Self, String> {
        let frame_bytes = model.frame_bytes(true)?;
        let mut handle = null_mut();
        check(unsafe { c::ds_stream_open(&mut handle, model.0) })?;
        Ok(Stream { handle, frame_bytes, model: PhantomData })
    }

    /// The frames that became final: a view until the next step, which therefore borrows the stream.
    fn step(&mut self, frames: &[u8], n_frames: usize, end: bool) -> Result<&[u8], String> {
        let input = c::Input { data: frames.as_ptr().cast(), n_frames, dtype: 0 };
        let mut out = c::Output { data: null(), n_frames: 0, start: 0 };
        check(unsafe { c::ds_stream_step(self.handle, &mut out, &input, if end { c::END } else { 0 }) })?;
        Ok(unsafe { std::slice::from_raw_parts(out.data.cast(), out.n_frames * self.frame_bytes) })
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        unsafe { c::ds_stream_close(self.handle) };
    }
}

fn run(path: &str) -> Result<(), String> {
    if unsafe { c::ds_abi_version() } < c::ABI {
        return Err("this library is older than the declarations".into());
    }
    let model = Model::load(path)?;
    let frame_bytes = model.frame_bytes(false)?;
    let mut stream = Stream::open(&model)?;
    let mut frames = Vec::new();
    std::io::stdin().read_to_end(&mut frames).map_err(|error| error.to_string())?;
    // numbers lie where numbers may lie, which bytes by themselves do not promise
    let mut chunk: Vec<u64> = vec![0; (100 * frame_bytes).div_ceil(8)];
    let mut rest = &frames[..frames.len() / frame_bytes * frame_bytes];
    loop {
        let (now, later) = rest.split_at(rest.len().min(100 * frame_bytes));
        let room = unsafe { std::slice::from_raw_parts_mut(chunk.as_mut_ptr().cast::<u8>(), now.len()) };
        room.copy_from_slice(now);
        let out = stream.step(room, now.len() / frame_bytes, later.is_empty())?;
        std::io::stdout().write_all(out).map_err(|error| error.to_string())?;
        if later.is_empty() {
            return Ok(());
        }
        rest = later;
    }
}

fn main() {
    let path = std::env::args().nth(1).unwrap_or_default();
    if let Err(message) = run(&path) {
        eprintln!("stream_frames: {message}");
        std::process::exit(1);
    }
}
