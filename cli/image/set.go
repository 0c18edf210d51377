package image

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"demesne/cli/app"
	"demesne/images"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/session"
)

// listFlag returns the flag that names a file with names of images.
func listFlag(to *string, help string) cmdline.Flags {
	return cmdline.Flags{{Group: cmdline.GroupGeneral, Long: "list", Arg: "FILE", Complete: cmdline.File, Set: cmdline.Text(to), Help: help}}
}

// maxList bounds the bytes of a list.
const maxList = 16 << 20

// readList returns the images that a file names, one a line, each once. The name - is stdin. Empty lines and lines that begin
// with # are ignored.
func readList(path string, stdin io.Reader) (refs []imageref.Ref, err error) {
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("list %q: %w", path, fsutil.Reason(err))
		}
		defer f.Close()
		stdin = f
	}
	seen := map[string]bool{}
	lines := bufio.NewScanner(io.LimitReader(stdin, maxList))
	for n := 1; lines.Scan(); n++ {
		name := strings.TrimSpace(lines.Text())
		if name == "" || name[0] == '#' || seen[name] {
			continue
		}
		seen[name] = true
		one, err := named([]string{name})
		if err != nil {
			return nil, fmt.Errorf("list %q: line %d: %w", path, n, err)
		}
		refs = append(refs, one[0])
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("list %q: %w", path, err)
	}
	if len(refs) == 0 {
		return nil, fmt.Errorf("list %q: it names no image", path)
	}
	return refs, nil
}

// setInfo is printed as JSON by pull --list and images check --list.
type setInfo struct {
	Images  []imageInfo   `json:"images"`
	Missing []missingInfo `json:"missing"`
}

// missingInfo is an image of a list that is not here.
type missingInfo struct {
	Name string      `json:"name"`
	Code events.Code `json:"code,omitempty"` // such as not-found
	Why  string      `json:"why,omitempty"`
}

// here returns the image of ref if the store has all of it.
func here(c *images.Client, ref imageref.Ref) *images.Image {
	img, err := c.Store.Lookup(ref)
	if err != nil || c.Store.Whole(img) != nil {
		return nil
	}
	return img
}

// checkSet lists which images of a list are here. It reads no contents.
func (o *listOptions) checkSet() (int, error) {
	refs, err := readList(o.list, o.Stdin)
	if err != nil {
		return 0, err
	}
	return o.WithImages(func(_ context.Context, c *images.Client) (int, error) {
		info, lines := setInfo{[]imageInfo{}, []missingInfo{}}, ""
		for _, ref := range refs {
			img := here(c, ref)
			if img == nil {
				info.Missing = append(info.Missing, missingInfo{Name: ref.Given})
				lines += "missing " + ref.Given + "\n"
				continue
			}
			info.Images = append(info.Images, infoOf(images.Listed{Image: img}))
			lines += "here " + imageref.Short(ref.Full) + " " + img.Digest.String() + "\n"
		}
		code := min(len(info.Missing), 1)
		if o.json {
			_, err := o.PrintJSON(info)
			return code, err
		}
		_, err := o.Print(lines)
		return code, err
	})
}

// Of a pull of many images.
const (
	atOnce    = 4                // images; the layers of each are pulled in parallel too
	busyTries = 6                // pulls of one image whose registry limits requests
	busyWait  = 15 * time.Second // first wait, if the registry does not say how long; it doubles each time
	busyMost  = time.Hour        // longest wait that a registry may ask for
)

// setPull pulls the images of a list.
type setPull struct {
	*pullOptions
	c    *images.Client
	refs []imageref.Ref

	mu    sync.Mutex
	until map[string]time.Time // by registry: when it takes requests again
	done  int
}

// pulledOne is the outcome for one image.
type pulledOne struct {
	img *images.Image
	err error
}

func (o *pullOptions) pullSet() (int, error) {
	refs, err := readList(o.list, o.Stdin)
	if err != nil {
		return 0, err
	}
	return o.WithImages(func(ctx context.Context, c *images.Client) (int, error) {
		c.Platform = o.platform
		s := &setPull{pullOptions: o, c: c, refs: refs, until: map[string]time.Time{}}
		return s.all(ctx)
	})
}

// all pulls the images, several at a time, and prints them in the order of the list.
func (s *setPull) all(ctx context.Context) (int, error) {
	outcomes, next := make([]chan pulledOne, len(s.refs)), make(chan int)
	for i := range outcomes {
		outcomes[i] = make(chan pulledOne, 1)
	}
	for range min(atOnce, len(s.refs)) {
		go func() {
			for i := range next {
				img, err := s.one(ctx, s.refs[i])
				outcomes[i] <- pulledOne{img, err}
			}
		}()
	}
	go func() {
		defer close(next)
		for i := range s.refs {
			next <- i
		}
	}()
	info := setInfo{[]imageInfo{}, []missingInfo{}}
	for i, ref := range s.refs {
		got := <-outcomes[i]
		if got.err != nil {
			info.Missing = append(info.Missing, missing(ref, got.err))
			continue
		}
		info.Images = append(info.Images, infoOf(images.Listed{Image: got.img}))
		if _, err := tell(&s.Console, s.json, s.quiet, ref, got.img); err != nil {
			return 0, err
		}
	}
	if ctx.Err() != nil {
		return app.ExitFailed, ctx.Err()
	}
	if s.json {
		if _, err := s.PrintJSON(info); err != nil {
			return 0, err
		}
	}
	return s.sum(info), nil
}

// sum says last what is missing, and returns the exit code.
func (s *setPull) sum(info setInfo) int {
	if len(info.Missing) == 0 {
		return 0
	}
	s.Say(fmt.Sprintf("pull: %d of %d images are missing:", len(info.Missing), len(s.refs)))
	for _, m := range info.Missing {
		fmt.Fprintf(s.Stderr, "missing %s: %s\n", m.Name, text.SafeLine(m.Why))
	}
	return 1
}

func missing(ref imageref.Ref, err error) missingInfo {
	m := missingInfo{Name: ref.Given, Why: text.SafeLine(session.NamedImage(ref, err).Error())}
	if failed, ok := errors.AsType[*events.Failure](err); ok {
		m.Code = failed.Code
	}
	return m
}

// one makes sure that an image is here. It does not ask the registry for one that is: a list that was cut short continues.
func (s *setPull) one(ctx context.Context, ref imageref.Ref) (img *images.Image, err error) {
	if img = here(s.c, ref); img != nil && s.platform == "" {
		s.tellOne(ref, "is here")
		return img, nil
	}
	for try := range busyTries {
		if err = s.await(ctx, ref); err != nil {
			return nil, err
		}
		img, err = s.c.Pull(ctx, ref, nil)
		wait, busy := busyFor(err, try)
		if !busy {
			break
		}
		s.pause(ref, wait)
	}
	if err != nil {
		s.tellOne(ref, "failed")
		return nil, err
	}
	s.tellOne(ref, "pulled")
	return img, nil
}

// busyFor returns how long to wait before the next try, if err means that the registry limits requests. It is pure.
func busyFor(err error, try int) (wait time.Duration, busy bool) {
	var failed *events.Failure
	if !errors.As(err, &failed) || failed.Code != events.CodeBusy || failed.Wait > busyMost || try == busyTries-1 {
		return 0, false
	}
	if failed.Wait > 0 {
		return failed.Wait, true
	}
	return busyWait << try, true
}

// pause keeps later pulls from the registry of ref away for the time.
func (s *setPull) pause(ref imageref.Ref, wait time.Duration) {
	host, until := registryOf(ref), time.Now().Add(wait)
	s.mu.Lock()
	longer := until.After(s.until[host].Add(time.Second))
	if longer {
		s.until[host] = until
	}
	s.mu.Unlock()
	if longer && !s.quiet {
		s.Say(fmt.Sprintf("pull: %s limits requests: again in %s", text.SafeLine(host), wait.Round(time.Second)))
	}
}

// await waits until the registry of ref takes requests.
func (s *setPull) await(ctx context.Context, ref imageref.Ref) error {
	for {
		s.mu.Lock()
		wait := time.Until(s.until[registryOf(ref)])
		s.mu.Unlock()
		if wait <= 0 {
			return ctx.Err()
		}
		again := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			again.Stop()
			return ctx.Err()
		case <-again.C:
		}
	}
}

// registryOf returns the registry in a full name.
func registryOf(ref imageref.Ref) string {
	host, _, _ := strings.Cut(ref.Full, "/")
	return host
}

// tellOne prints how far the list is.
func (s *setPull) tellOne(ref imageref.Ref, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done++; !s.quiet {
		s.Say(fmt.Sprintf("pull: %d of %d: %s %s", s.done, len(s.refs), ref.Given, what))
	}
}
