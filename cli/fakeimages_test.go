package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
)

// hands stands in for demesne-images in scripts. Its registry has one image under any name, and its unpacker
// unpacks nothing; the store is real. $HANDS_FAIL says which command fails, and how.
func hands() {
	verb, args := os.Args[1], os.Args[4:] // verb --store DIR …
	if code := os.Getenv("HANDS_FAIL"); strings.HasPrefix(code, verb+":") {
		failHands(strings.TrimPrefix(code, verb+":"))
	}
	store, err := images.Open(os.Args[3])
	check(err)
	switch verb {
	case "pull":
		handsPull(store, args[len(args)-1], os.Getenv("HANDS_CONFIG"))
	case "unpack":
		handsUnpack()
	case "sweep":
		io.Copy(io.Discard, os.Stdin)
		emit(events.Event{Event: events.Result, Freed: 2048})
	case "import":
		handsPull(store, args[1], `{}`)
	case "save", "export":
		check(os.WriteFile(args[len(args)-1], []byte(strings.Join(args[:len(args)-1], " ")+" as a tar\n"), 0o644))
		emit(events.Event{Event: events.Result})
	}
}

func failHands(code string) {
	switch code {
	case "slow":
		fmt.Fprintln(os.Stderr, "pulling")
		check(os.WriteFile("pulling", nil, 0o644))
		io.Copy(io.Discard, os.Stdin) // ends when demesne closes the pipe
		os.Exit(1)
	case "silent":
		fmt.Fprintln(os.Stderr, "the last words")
		os.Exit(3)
	}
	emit(events.Event{Event: events.Error, Code: events.Code(code), Text: "registry says " + code, Hint: "try " + code})
	os.Exit(1)
}

func handsPull(s *images.Store, name, config string) {
	ctx := context.Background()
	put := func(b []byte) oci.Descriptor {
		d, n, err := s.Put(ctx, bytes.NewReader(b), 1<<20)
		check(err)
		return oci.Descriptor{Digest: d, Size: n}
	}
	layer := []byte("layer of " + os.Getenv("HANDS_LAYER"))
	l := put(layer)
	diffID := oci.Digest(fmt.Sprintf("sha256:%x", sha256.Sum256(append(layer, '!'))))
	l.MediaType = "application/vnd.oci.image.layer.v1.tar"
	emit(events.Event{Event: events.Layer, Digest: l.Digest, State: events.Pulling, Bytes: 5, Total: l.Size})
	emit(events.Event{Event: events.Retry, Digest: l.Digest, In: time.Second, Why: "connection\x1b[31m cut"})
	emit(events.Event{Event: events.Layer, Digest: l.Digest, State: events.Pulled,
		Layer: &oci.Layer{Digest: l.Digest, DiffID: diffID, Size: l.Size, MediaType: l.MediaType}})
	c := put(fmt.Appendf(nil, `{"os":"linux","architecture":%q,"rootfs":{"diff_ids":[%q]},"config":%s}`, cmp.Or(os.Getenv("HANDS_ARCH"), "amd64"), diffID, cmp.Or(config, "{}")))
	m, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": oci.TypeOCIManifest, "config": c, "layers": []oci.Descriptor{l}})
	check(err)
	ref, err := imageref.Parse(name)
	check(err)
	manifest := put(m)
	manifest.MediaType = oci.TypeOCIManifest
	_, err = s.Add(ctx, images.Record{Ref: ref, Manifest: manifest, Pulled: time.Now()})
	check(err)
	emit(events.Event{Event: events.Result, Digest: manifest.Digest})
}

// handsUnpack creates the file that bare's Create expects of an unpacked image.
func handsUnpack() {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var l oci.Layer
		check(json.Unmarshal(in.Bytes(), &l))
		check(os.WriteFile("unpacked", nil, 0o644))
		emit(events.Event{Event: events.Layer, DiffID: l.DiffID, State: events.Done})
	}
}

func emit(e events.Event) { check(json.NewEncoder(os.Stdout).Encode(e)) }

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// openBareImages is base.Images with hands in place of demesne-images. hands needs no user namespace.
func openBareImages() (*images.Client, error) {
	program, err := exec.LookPath("demesne-images")
	if err != nil {
		return nil, err
	}
	dir, err := images.DefaultDir()
	if err != nil {
		return nil, err
	}
	store, err := images.Open(dir)
	if err != nil {
		return nil, err
	}
	enter := func(_ context.Context, cmd *exec.Cmd) error {
		cmd.Env = os.Environ()
		return cmd.Start()
	}
	return &images.Client{Store: store, Program: program, Enter: enter}, nil
}
