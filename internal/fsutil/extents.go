package fsutil

import "golang.org/x/sys/unix"

// ExtentBlock is the alignment of an [Extent], so that each of its bytes takes one byte on disk.
const ExtentBlock = 4096

// An Extent is a part of a file that holds data.
type Extent struct{ At, Length int64 }

// Extents lists the extents of a file that has size bytes (lseek(2)), in whole blocks and in order. A list of more
// than most extents is shortened: its smallest holes then count as data.
func Extents(fd int, size int64, most int) ([]Extent, error) {
	var list []Extent
	gap := int64(ExtentBlock)
	for at := int64(0); at < size; {
		from, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if err == unix.ENXIO { // no data after at
			break
		}
		if err != nil {
			return nil, err
		}
		to, err := unix.Seek(fd, from, unix.SEEK_HOLE)
		if err != nil {
			return nil, err
		}
		if from >= size || to <= from {
			break
		}
		at = min((to+ExtentBlock-1)/ExtentBlock*ExtentBlock, size)
		begin := from / ExtentBlock * ExtentBlock
		list = join(list, Extent{begin, at - begin}, gap)
		for ; len(list) > most; gap *= 2 {
			list = joinAll(list, 2*gap)
		}
	}
	return list, nil
}

// join appends an extent, or extends the last one if the hole between them is smaller than gap.
func join(list []Extent, e Extent, gap int64) []Extent {
	if n := len(list); n > 0 && e.At-(list[n-1].At+list[n-1].Length) < gap {
		list[n-1].Length = e.At + e.Length - list[n-1].At
		return list
	}
	return append(list, e)
}

func joinAll(list []Extent, gap int64) []Extent {
	joined := list[:0]
	for _, e := range list {
		joined = join(joined, e, gap)
	}
	return joined
}
