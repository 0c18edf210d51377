package fileops

import (
	"os"

	"golang.org/x/sys/unix"
)

// Shared is memory in which a caller hands the bytes of a long Put to the process in the sandbox: a pipe would allocate, fill and
// free a page for each 4 KiB. The memory is a ring of slots. The caller fills a slot and sends the length of its bytes with
// sharedBit, through the pipe. The process answers with the byte taken as soon as the file has them.
//
// The sandbox can only read the memory, and cannot change its size: seals of the kernel (memfd_create(2)) hold that from before
// the sandbox gets the descriptor. The caller never reads it.
type Shared struct{ slots []byte }

const (
	slots      = 16 // with 4, each side waits for the other where both share a processor with a third program
	sharedSize = slots * chunkMost
	sharedBit  = 1 << 31
	taken      = '\x06'
)

// Share returns new memory, and its file for the stderr of the process.
func Share() (*Shared, *os.File, error) {
	fd, err := unix.MemfdCreate("demesne-put", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "demesne-put")
	if err := unix.Ftruncate(fd, sharedSize); err != nil {
		f.Close()
		return nil, nil, os.NewSyscallError("ftruncate", err)
	}
	m, err := unix.Mmap(fd, 0, sharedSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		f.Close()
		return nil, nil, os.NewSyscallError("mmap", err)
	}
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		f.Close()
		unix.Munmap(m)
		return nil, nil, os.NewSyscallError("seal", err)
	}
	return &Shared{m}, f, nil
}

// Close frees the memory. No Call may use it. s may be nil.
func (s *Shared) Close() {
	if s != nil && s.slots != nil {
		unix.Munmap(s.slots)
		s.slots = nil
	}
}

// received returns the memory that a caller shares by f, as this process sees it.
func received(f *os.File) (*Shared, error) {
	m, err := unix.Mmap(int(f.Fd()), 0, sharedSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, errAnswer
	}
	return &Shared{m}, nil
}

// slot returns the slot of a chunk, by its number.
func (s *Shared) slot(n int) []byte {
	at := n % slots * chunkMost
	return s.slots[at : at+chunkMost]
}
