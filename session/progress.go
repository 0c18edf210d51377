package session

import (
	"fmt"
	"sync"

	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
)

// image returns the function that takes the events of an image: Image, or one that makes lines of them for Progress.
func (c *Callbacks) image(ref imageref.Ref) func(events.Event) {
	if c.Image != nil {
		return c.Image
	}
	return Lines(ref.String(), c.Progress)
}

// Lines returns a function that converts the events of an image to lines about its progress, for tell; nil without tell.
func Lines(image string, tell func(string)) func(events.Event) {
	if tell == nil {
		return nil
	}
	var mu sync.Mutex
	got, total := map[oci.Digest]int64{}, map[oci.Digest]int64{}
	return func(e events.Event) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case e.Event == events.Retry:
			tell(fmt.Sprintf("image %s: trying again in %s: %s", image, e.In, e.Why))
			return
		case e.Event == events.Notice && e.Why != "" && e.DiffID == "": // a step of a build
			tell(fmt.Sprintf("image %s: %s", image, e.Why))
			return
		case e.Event != events.Layer:
			return
		case e.State == events.Unpacking || e.State == events.Done:
			tell(fmt.Sprintf("image %s: unpacking", image))
			return
		}
		got[e.Digest] = e.Bytes
		if e.Total > 0 {
			total[e.Digest] = e.Total
		}
		if e.State == events.Pulled || e.State == events.Present {
			got[e.Digest] = total[e.Digest]
		}
		tell(fmt.Sprintf("image %s: %d of %d MiB fetched", image, sum(got)>>20, sum(total)>>20))
	}
}

func sum(of map[oci.Digest]int64) (n int64) {
	for _, v := range of {
		n += v
	}
	return n
}
