package push

import (
	"cmp"
	"io"
)

const (
	aheadBlock  = 256 << 10
	aheadBlocks = 4
)

// ahead reads and hashes in another goroutine, so that neither waits for the network.
type ahead struct {
	full, free chan []byte
	stop, done chan struct{}
	block, now []byte // the block that is read now, and what is left of it
	err        error  // valid once full is closed
}

// readAhead starts to read r. sum gets every byte, and is complete when Read returns [io.EOF].
func readAhead(r io.Reader, sum io.Writer) *ahead {
	a := &ahead{full: make(chan []byte, aheadBlocks), free: make(chan []byte, aheadBlocks), stop: make(chan struct{}), done: make(chan struct{})}
	for range aheadBlocks {
		a.free <- make([]byte, aheadBlock)
	}
	go a.fill(r, sum)
	return a
}

func (a *ahead) fill(r io.Reader, sum io.Writer) {
	defer close(a.done)
	defer close(a.full)
	for {
		var block []byte
		select {
		case <-a.stop:
			return
		case block = <-a.free:
		}
		n, err := r.Read(block[:aheadBlock])
		_, _ = sum.Write(block[:n]) // a hash does not fail
		if n > 0 {
			a.full <- block[:n]
		} else {
			a.free <- block
		}
		if err != nil {
			a.err = err
			return
		}
	}
}

func (a *ahead) Read(b []byte) (int, error) {
	if len(a.now) == 0 {
		block, ok := <-a.full
		if !ok {
			return 0, cmp.Or(a.err, io.ErrClosedPipe) // net/http may read on after the answer
		}
		a.block, a.now = block, block
	}
	n := copy(b, a.now)
	if a.now = a.now[n:]; len(a.now) == 0 {
		a.free <- a.block
	}
	return n, nil
}

// Close ends the goroutine. It does not close the reader below.
func (a *ahead) Close() {
	close(a.stop)
	<-a.done
}
