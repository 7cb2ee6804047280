// stream_frames.go - frames from standard input go through a model, and what is final goes to standard output.
//
//	export PKG_CONFIG_PATH=LIB/pkgconfig
//	go build stream_frames.go
//	./stream_frames MODEL.dsm < frames_in > frames_out
//
// LIB is what `python -m dreamstream.config --libs` names behind -L. For models with one input and one output.
package main

// #cgo pkg-config: dreamstream
// #include <dreamstream.h>
// #include <stdlib.h>
import "C"

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"unsafe"
)

const chunkFrames = 100

// check makes an error of a status. Its message belongs to the thread that failed, to which main has locked us.
func check(status C.ds_status) error {
	if status == C.DS_OK {
		return nil
	}
	return errors.New(C.GoString(C.ds_last_error()))
}

func frameBytes(model *C.ds_model, output bool) (int, error) {
	info := C.ds_port_info{struct_size: C.sizeof_ds_port_info}
	status := C.ds_status(C.DS_OK)
	if output {
		status = C.ds_model_output(model, 0, &info)
	} else {
		status = C.ds_model_input(model, 0, &info)
	}
	return int(info.frame_bytes), check(status)
}

func run(path string) error {
	if C.ds_abi_version() < C.DS_ABI_VERSION {
		return errors.New("this library is older than the header")
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var model *C.ds_model
	if err := check(C.ds_model_load(&model, name, nil)); err != nil {
		return err
	}
	defer C.ds_model_close(model)
	in, err := frameBytes(model, false)
	if err != nil {
		return err
	}
	out, err := frameBytes(model, true)
	if err != nil {
		return err
	}
	var stream *C.ds_stream
	if err := check(C.ds_stream_open(&stream, model)); err != nil {
		return err
	}
	defer C.ds_stream_close(stream)

	// What a struct points at must be C's own memory: Go's collector may move the rest.
	room := C.malloc(C.size_t(chunkFrames*in + 1))
	if room == nil {
		return errors.New("no memory for a chunk")
	}
	defer C.free(room)
	chunk := unsafe.Slice((*byte)(room), chunkFrames*in)
	for ended := false; !ended; {
		n, err := io.ReadFull(os.Stdin, chunk)
		ended = err == io.EOF || err == io.ErrUnexpectedEOF
		if err != nil && !ended {
			return err
		}
		input := C.ds_input{data: room, n_frames: C.size_t(n / in)}
		var flags C.uint32_t
		if ended {
			flags = C.DS_END
		}
		var output C.ds_output
		if err := check(C.ds_stream_step(stream, &output, &input, flags)); err != nil {
			return err
		}
		// A view until the next step: it is written before.
		if _, err := os.Stdout.Write(unsafe.Slice((*byte)(output.data), int(output.n_frames)*out)); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	runtime.LockOSThread()
	path := ""
	if len(os.Args) > 1 {
		path = os.Args[1]
	}
	if err := run(path); err != nil {
		fmt.Fprintln(os.Stderr, "stream_frames:", err)
		os.Exit(1)
	}
}
