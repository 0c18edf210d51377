package integration

import (
	"archive/tar"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"demesne/integration/fixture"

	"github.com/klauspost/compress/zstd"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// onSmallDisk runs shell text where the image store is a file system of its own, with the given size in
// megabytes. It does so in a mount namespace and, for an ordinary user, in a user namespace as well.
func (g *gallery) onSmallDisk(t *testing.T, megabytes, script string) result {
	t.Helper()
	flags := []string{"-m"}
	if os.Getuid() != 0 {
		flags = []string{"-rm"}
	}
	// The file system exists only while the script runs, so the script does everything with the store.
	const mount = `mount -t tmpfs -o mode=755,size=$1m store "$DEMESNE_IMAGE_STORE" && eval "$2"`
	cmd := g.command(program(t, "unshare"), append(flags, "sh", "-c", mount, "sh", megabytes, script)...)
	cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"))
	return g.finish(cmd)
}

// TestImageDiskFull checks that a disk that fills up while fetching or unpacking is reported in one line. The
// store is left as it was: images already there still run, and the space is freed.
func TestImageDiskFull(t *testing.T) {
	need(t, exec.Command("unshare", "-rm", "true").Run() == nil, "user namespaces for unshare")
	for name, layer := range map[string][]fixture.Entry{
		"fetching":  noise(80 << 20),
		"unpacking": {fixture.File("zeros", strings.Repeat("zeros", 16<<20))},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGallery(t)
			small, _ := g.simple("small:1")
			g.push("large:1", v1.Config{Env: []string{"PATH=/bin"}}, g.busybox(), layer)
			g.extra = append(g.extra, "SMALL="+small, "LARGE="+g.reg.Ref("large:1"))
			r := g.onSmallDisk(t, "64", `demesne pull -q $SMALL >/dev/null || exit 1
				used() { demesne gc >/dev/null 2>&1; df --output=used "$DEMESNE_IMAGE_STORE" | tail -1; }
				before=$(used); demesne pull $LARGE; echo "code $?"
				demesne run --image $LARGE -- true 2>/dev/null; echo "code $?"
				demesne images check >/dev/null && echo whole
				demesne run --image $SMALL
				test $(used) -le $((before + 1500)) && echo "room again" || echo "$before KiB, then $(used): $(find $DEMESNE_IMAGE_STORE -type f -size +100k | grep -v bin/)"
				demesne rmi $SMALL; demesne gc --all >/dev/null 2>&1`)
			want := "code 125\ncode 125\nwhole\ndefault\nroom again\n"
			if r.stdout != want || !strings.Contains(r.stderr, "no space left") {
				t.Errorf("stdout: %s\nwant: %s\nstderr: %s", r.stdout, want, r.stderr)
			}
		})
	}
}

// TestImageBombDisk checks that an archive whose content does not fit is refused before the disk is full (F26).
// The store is left as it was.
func TestImageBombDisk(t *testing.T) {
	need(t, exec.Command("unshare", "-rm", "true").Run() == nil, "user namespaces for unshare")
	g := newGallery(t)
	zeros := func(name string, files ...string) {
		f, err := os.Create(g.dir + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		z, err := zstd.NewWriter(f)
		if err != nil {
			t.Fatal(err)
		}
		w := tar.NewWriter(z)
		for _, file := range files {
			const size = 200 << 20
			if err := w.WriteHeader(&tar.Header{Name: file, Size: size, Mode: 0o644, Typeflag: tar.TypeReg}); err != nil {
				t.Fatal(err)
			}
			w.Write(make([]byte, size))
		}
		if err := errors.Join(w.Close(), z.Close()); err != nil {
			t.Fatal(err)
		}
	}
	zeros("bomb.tar.zst", "zeros")
	zeros("docker.tar.zst", strings.Repeat("0", 64)+".json", "manifest.json")
	r := g.onSmallDisk(t, "96", `demesne images >/dev/null || exit 1
		used() { df --output=used "$DEMESNE_IMAGE_STORE" | tail -1; }
		before=$(used)
		demesne import bomb.tar.zst bomb:1 && demesne run --image bomb:1 -- true; echo "code $?"
		demesne rmi bomb:1 >/dev/null 2>&1; demesne gc --all >/dev/null
		demesne import docker.tar.zst bomb:2; echo "code $?"
		demesne run --image docker-archive:$PWD/docker.tar.zst -- true; echo "code $?"
		test $(used) -le $((before + 500)) && echo "room again" || echo "$before KiB, then $(used)"`)
	if want := "code 125\ncode 125\ncode 125\nroom again\n"; !strings.HasSuffix(r.stdout, want) || strings.Count(r.stderr, "no space left") != 3 {
		t.Errorf("stdout: %s\nwant: %s\nstderr: %s", r.stdout, want, r.stderr)
	}
}
