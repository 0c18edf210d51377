package integration

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"demesne/integration/fixture"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// onSmallDisk runs shell text where the store is a file system of so many megabytes of its
// own: in a mount namespace, and for an ordinary user in a user namespace as well.
func (g *gallery) onSmallDisk(t *testing.T, megabytes, script string) result {
	t.Helper()
	flags := []string{"-m"}
	if os.Getuid() != 0 {
		flags = []string{"-rm"}
	}
	// The store is found anew: everything about it happens while the file system is there.
	const mount = `mount -t tmpfs -o mode=755,size=$1m store "$DEMESNE_IMAGES" && eval "$2"`
	cmd := g.command(program(t, "unshare"), append(flags, "sh", "-c", mount, "sh", megabytes, script)...)
	cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"))
	return g.finish(cmd)
}

// A disk that fills up, while fetching or while unpacking, is told in one line and leaves
// the store as it was: what was there runs, and there is room again.
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
				used() { demesne gc >/dev/null 2>&1; df --output=used "$DEMESNE_IMAGES" | tail -1; }
				before=$(used); demesne pull $LARGE; echo "code $?"
				demesne run --image $LARGE -- true 2>/dev/null; echo "code $?"
				demesne images verify >/dev/null && echo whole
				demesne run --image $SMALL
				test $(used) -le $((before + 1500)) && echo "room again" || echo "$before KiB, then $(used): $(find $DEMESNE_IMAGES -type f -size +100k | grep -v bin/)"
				demesne rmi $SMALL; demesne gc --all >/dev/null 2>&1`)
			want := "code 125\ncode 125\nwhole\ndefault\nroom again\n"
			if r.stdout != want || !strings.Contains(r.stderr, "no space left") {
				t.Errorf("stdout: %s\nwant: %s\nstderr: %s", r.stdout, want, r.stderr)
			}
		})
	}
}
