//! Rust: memory that frees itself, on a stream per thread. docs/languages.md says what a binding has to know.
//!
//!     rustc -O examples/threads.rs $(pkg-config --libs weir) -C link-arg=-Wl,-rpath,$(pkg-config --variable=libdir weir)

use std::ffi::{c_void, CStr};
use std::fmt;
use std::os::raw::{c_char, c_int};

/// weir_stream: passed by value.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Stream {
    id: u64,
}

#[link(name = "weir")]
extern "C" {
    fn weir_error_text() -> *const c_char;
    fn weir_stream_from_pool(device: c_int, priority: c_int, out: *mut Stream) -> c_int;
    fn weir_stream_synchronize(stream: Stream) -> c_int;
    fn weir_stream_wait(stream: Stream, other: Stream) -> c_int;
    fn weir_alloc_on(bytes: usize, stream: Stream, out: *mut *mut c_void) -> c_int;
    fn weir_free(pointer: *mut c_void) -> c_int;
    fn weir_record_stream(pointer: *const c_void, stream: Stream) -> c_int;
    fn weir_fill(to: *mut c_void, value: u8, bytes: usize, stream: Stream) -> c_int;
    fn weir_copy(to: *mut c_void, from: *const c_void, bytes: usize, stream: Stream) -> c_int;
}

/// A status, and the text, which is the calling thread's until its next failure.
struct Error {
    status: c_int,
    text: String,
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} ({})", self.text, self.status)
    }
}

fn check(status: c_int) -> Result<(), Error> {
    if status == 0 {
        return Ok(());
    }
    let text = unsafe { CStr::from_ptr(weir_error_text()) };
    Err(Error { status, text: text.to_string_lossy().into_owned() })
}

fn stream() -> Result<Stream, Error> {
    let mut s = Stream::default();
    check(unsafe { weir_stream_from_pool(0, 0, &mut s) })?;
    Ok(s)
}

/// Device memory of one stream. It may be dropped by any thread, and while work on that stream still uses it.
struct Memory {
    pointer: *mut c_void,
    bytes: usize,
    stream: Stream,
}

unsafe impl Send for Memory {}
unsafe impl Sync for Memory {}

impl Memory {
    fn filled(bytes: usize, value: u8, stream: Stream) -> Result<Memory, Error> {
        let mut pointer = std::ptr::null_mut();
        check(unsafe { weir_alloc_on(bytes, stream, &mut pointer) })?;
        let memory = Memory { pointer, bytes, stream };
        check(unsafe { weir_fill(pointer, value, bytes, stream) })?;
        Ok(memory)
    }

    /// Read on another stream: that one waits for the work so far, and the memory is not reused before the copy is done.
    fn read_on(&self, reader: Stream) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0u8; self.bytes];
        check(unsafe { weir_stream_wait(reader, self.stream) })?;
        check(unsafe { weir_record_stream(self.pointer, reader) })?;
        check(unsafe { weir_copy(bytes.as_mut_ptr().cast(), self.pointer, self.bytes, reader) })?;
        check(unsafe { weir_stream_synchronize(reader) })?;
        Ok(bytes)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Err(error) = check(unsafe { weir_free(self.pointer) }) {
            eprintln!("{:?}", error);
        }
    }
}

fn main() -> Result<(), Error> {
    let reader = stream()?;
    let makers: Vec<_> =
        (1..=4u8).map(|i| std::thread::spawn(move || Memory::filled(i as usize * 1000, i, stream()?))).collect();
    for (i, maker) in makers.into_iter().enumerate() {
        let memory = maker.join().expect("the thread ends")?;
        let bytes = memory.read_on(reader)?;
        assert!(bytes.len() == (i + 1) * 1000 && bytes.iter().all(|b| *b as usize == i + 1));
    }
    match Memory::filled(1 << 50, 0, reader) {
        Err(error) => println!("four threads' memory read back; a petabyte: {}", error.text.lines().next().unwrap_or("")),
        Ok(_) => panic!("there is no such device"),
    }
    Ok(())
}
