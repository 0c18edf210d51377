package images

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/fsutil"
)

// fakeImages imitates demesne-images. Its registry is the store in $DEMESNE_FAKE_SOURCE.
// $DEMESNE_FAKE selects a misbehaviour.
func fakeImages() int {
	say := json.NewEncoder(os.Stdout)
	if wrong := fakeWrong[os.Getenv("DEMESNE_FAKE")+" "+os.Args[1]]; wrong != nil {
		return wrong()
	}
	if os.Getenv("DEMESNE_FAKE") == "mortal" {
		stepsLeft = 1 + rand.IntN(6)
		if rand.IntN(4) == 0 { // within a step
			stepsLeft = 0
			time.AfterFunc(rand.N(12*time.Millisecond), die)
		}
	}
	step()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var err error
	switch os.Args[1] {
	case "pull":
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
		err = fakePull(ctx, os.Args[3], os.Args[4], say)
	case "unpack":
		err = fakeUnpack(os.Args[3], say)
	case "sweep":
		n := 0
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); n++ {
		}
		say.Encode(events.Event{Event: events.Result, Freed: int64(n)})
	case "import":
		err = fakePull(ctx, os.Args[3], os.Args[5], say)
	case "save", "export":
		err = fakeSave(say)
	}
	if err != nil {
		say.Encode(events.Event{Event: events.Error, Text: err.Error(), Hint: "try again", Code: events.CodeUnreachable})
		return 1
	}
	return 0
}

// stepsLeft is the number of steps after which a mortal program kills itself. 0 means never.
var stepsLeft int

// step marks a point at which a mortal program can die. The speed of the machine does not matter there.
func step() {
	if stepsLeft--; stepsLeft == 0 {
		die()
	}
}

func die() { syscall.Kill(os.Getpid(), syscall.SIGKILL) }

// fakePull copies an image from one store to another in small pieces.
func fakePull(ctx context.Context, dir, name string, say *json.Encoder) error {
	from, err := Open(os.Getenv("DEMESNE_FAKE_SOURCE"))
	if err != nil {
		return err
	}
	to, err := Open(dir)
	if err != nil {
		return err
	}
	ref, err := imageref.Parse(name)
	if err != nil {
		return err
	}
	img, err := from.Lookup(ref)
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(from.blobPath(img.Digest))
	if err != nil {
		return err
	}
	m, err := oci.ParseManifest(raw)
	if err != nil {
		return err
	}
	for i, b := range append(m.Layers, m.Config) {
		e := events.Event{Event: events.Layer, State: events.Pulled, Digest: b.Digest}
		if i < len(img.Layers) {
			e.Layer = &img.Layers[i]
		}
		err := fakeBlob(ctx, from, to, b)
		if errors.Is(err, ErrPresent) {
			e.State = events.Present
		} else if err != nil {
			return err
		}
		say.Encode(e)
		step()
	}
	d, err := put(ctx, to, raw, m.MediaType)
	if err != nil {
		return err
	}
	if _, err := to.Add(ctx, Record{Ref: ref, Manifest: d, Pulled: time.Now()}); err != nil {
		return err
	}
	return say.Encode(events.Event{Event: events.Result, Digest: d.Digest})
}

func fakeBlob(ctx context.Context, from, to *Store, b oci.Descriptor) error {
	w, err := to.Begin(ctx, b.Digest, b.Size)
	if err != nil {
		return err
	}
	defer w.Close()
	f, err := from.Blob(b.Digest)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(w.Offset(), io.SeekStart); err != nil {
		return err
	}
	piece := 1 + rand.Int64N(b.Size)
	for {
		n, err := io.CopyN(w, fsutil.ContextReader(ctx, f), piece)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n < piece {
			return w.Commit(ctx)
		}
		step()
	}
}

// fakeUnpack marks the layers whose blobs exist as unpacked.
func fakeUnpack(dir string, say *json.Encoder) error {
	s, err := Open(dir)
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var l oci.Layer
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return err
		}
		tree := s.path("trees/fake-" + l.DiffID.Encoded())
		state := events.Done
		if _, err := os.Stat(tree); err == nil {
			state = events.Present
		} else if f, err := s.Blob(l.Digest); err != nil {
			return err
		} else if err := compare(context.Background(), f, l.DiffID, l.Size); err != nil {
			return err
		} else if err := os.MkdirAll(tree, 0o755); err != nil {
			return err
		}
		say.Encode(events.Event{Event: events.Layer, State: state, DiffID: l.DiffID})
		step()
	}
	return nil
}

func fakeSave(say *json.Encoder) error {
	say.Encode(events.Event{Event: events.Notice, Why: strings.Join(os.Args[4:len(os.Args)-1], " ")})
	out, err := os.OpenFile(os.Args[len(os.Args)-1], os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := out.Write(noise(1, 1<<20)); err != nil {
		return err
	}
	return say.Encode(events.Event{Event: events.Result})
}

// fakeWrong maps misbehaviours to programs.
var fakeWrong = map[string]func() int{
	"dies pull": func() int {
		fmt.Fprint(os.Stderr, strings.Repeat("noise ", 10_000), "panic: gone\n\ngoroutine 1\n")
		return 3
	},
	"garbage pull": func() int {
		fmt.Println("hello")
		time.Sleep(time.Hour) // what is tested: a process that does not end
		return 0
	},
	"endless pull": func() int {
		for {
			fmt.Print(strings.Repeat("{", 1000))
		}
	},
	"silent pull":  func() int { return 0 },
	"silent sweep": func() int { return 0 },
	"lazy unpack":  func() int { _, _ = io.Copy(io.Discard, os.Stdin); return 0 },
	"hostile unpack": func() int {
		json.NewEncoder(os.Stdout).Encode(events.Event{Event: events.Error, Text: `unpack layer "x": hostile`, Code: events.CodeRefused})
		return 1
	},
	"deaf pull": func() int { // ignores the end of stdin, and signals
		fmt.Println(`{"event":"notice","why":"deaf"}`)
		time.Sleep(time.Hour) // what is tested: a process that does not end
		return 0
	},
	"daemon pull": func() int { // leaves a process behind that holds its pipes
		cmd := exec.Command("/bin/sleep", "60")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Start(); err != nil {
			return 1
		}
		fmt.Printf(`{"event":"notice","why":"%d"}`+"\n", cmd.Process.Pid)
		fmt.Println(`{"event":"error","code":"denied","text":"login"}`)
		return 1
	},
	"reader unpack": func() int { // reads one line and exits with status 0
		bufio.NewScanner(os.Stdin).Scan()
		return 0
	},
}
