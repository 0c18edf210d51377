package images

import (
	"fmt"
	"testing"

	"demesne/images/oci"
)

// BenchmarkEnsure measures finding an image that is in the store.
func BenchmarkEnsure(b *testing.B) {
	for _, layers := range []int{3, 40} {
		b.Run(fmt.Sprintf("%dlayers", layers), func(b *testing.B) {
			s := newStore(b)
			for i := range 10 { // other images in the index
				addImage(b, s, tagged(i), noise(uint64(i), 100))
			}
			var all [][]byte
			for i := range layers {
				all = append(all, noise(uint64(i), 100))
			}
			addImage(b, s, "a:1", all...)
			c, ref := &Client{Store: s}, mustParse(b, "a:1")
			for b.Loop() {
				if _, err := c.Ensure(b.Context(), ref, PullMissing, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkBlob measures the cost that the store adds to a download.
func BenchmarkBlob(b *testing.B) {
	content := noise(1, 64<<20)
	d := oci.DigestOf(content)
	b.SetBytes(int64(len(content)))
	for b.Loop() {
		b.StopTimer()
		s := newStore(b)
		b.StartTimer()
		w, err := s.Begin(b.Context(), d, int64(len(content)))
		if err != nil {
			b.Fatal(err)
		}
		for at := 0; at < len(content); at += 32 << 10 {
			if _, err := w.Write(content[at : at+32<<10]); err != nil {
				b.Fatal(err)
			}
		}
		if err := w.Commit(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
