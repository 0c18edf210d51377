package integration

import (
	"cmp"
	"os"
	"os/exec"
	"strings"
	"testing"

	"demesne/integration/fixture"
	"demesne/integration/release"
)

// debianScript installs, uses, upgrades and removes each form of a release, in a Debian root without Go, gcc and git, as root
// and as an ordinary user. Its argument says whether the root's AppArmor knows user namespaces.
const debianScript = `set -eu
export PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin HOME=/root DEMESNE_LINGER=0
say() { echo "== $*"; }
for program in go gcc git; do ! command -v $program || exit 9; done
useradd -m u
as_u() { setpriv --reuid=u --regid=u --clear-groups env HOME=/home/u "$@"; }
uses() { # how demesne is called
  [ "$("$@" run -- echo works)" = works ]
  "$@" create --name live >/dev/null
  rm -f /tmp/in /tmp/out
  mkfifo /tmp/in
  "$@" exec -i live -- sh -c 'echo started; cat' </tmp/in >/tmp/out &
  running=$!
  exec 3>/tmp/in
  until grep -q started /tmp/out; do kill -0 $running; done
}
ends() {
  echo lives >&3
  exec 3>&-
  wait $running
  grep -q lives /tmp/out
  [ "$("$@" exec live -- echo again)" = again ]
  [ "$("$@" run -- echo works)" = works ]
  "$@" rm live
}
say package
dpkg -i /release/*.deb
demesne version
[ -e /etc/apparmor.d/demesne ] && profile=yes || profile=no
[ $profile = "$1" ]
[ $profile = no ] || apparmor_parser --skip-kernel-load --skip-cache /etc/apparmor.d/demesne
for who in root u; do
  [ $who = u ] && how='as_u demesne' || how=demesne
  uses $how
  dpkg -i /release/*.deb
  ends $how
done
test -e /usr/share/man/man1/demesne-run.1 -a -e /usr/lib/systemd/user/demesne.service -a -e /usr/share/bash-completion/completions/demesne
dpkg -r demesne
[ -z "$(find /usr /etc -name '*demesne*')" ]
say archive
sh /release/install.sh /release/*.tar.gz
uses /usr/local/bin/demesne
sh /release/install.sh /release/*.tar.gz
ends /usr/local/bin/demesne
sh /release/install.sh --uninstall
[ -z "$(find /usr /etc -name '*demesne*')" ]
as_u sh /release/install.sh /release/*.tar.gz
uses as_u /home/u/.local/bin/demesne
as_u sh /release/install.sh /release/*.tar.gz
ends as_u /home/u/.local/bin/demesne
as_u sh /release/install.sh --uninstall
[ -z "$(find /home/u/.local -name '*demesne*')" ]
say done
`

// TestInstallDebian installs a release's package and archive in Debian 12 and 13. It also tries the .rpm, the MCP bundle, and an image.
func TestInstallDebian(t *testing.T) {
	wholeRelease(t)
	need(t, os.Getuid() == 0, "root, to enter a root of Debian")
	program(t, "mmdebstrap")
	program(t, "gcc")
	program(t, "rpm")
	b := newBox(t)
	o := release.Options{Source: "..", Out: b.dir + "/release", Bin: bin, Packages: true, Log: t.Logf}
	if _, err := release.Make(o); err != nil {
		t.Fatal(err)
	}
	for suite, profile := range map[string]string{"bookworm": "no", "trixie": "yes"} {
		archive, err := fixture.DebianRoot(suite)
		if err != nil {
			t.Fatal(err)
		}
		root := b.mkdir(suite)
		if err := tool("tar", "-xf", archive, "-C", root, "--exclude=./dev/*"); err != nil {
			t.Fatal(err)
		}
		b.file(suite+"/script", debianScript, 0o755)
		if err := tool("cp", "-r", o.Out, root+"/release"); err != nil {
			t.Fatal(err)
		}
		// In a chroot the kernel refuses user namespaces, so the root becomes a mount namespace's. Init ends what is left.
		const enter = `mount --bind "$1" "$1" && cd "$1" && mount -t proc proc proc && mount --rbind /sys sys && mount --rbind /dev dev &&
			mount -t tmpfs tmpfs tmp && chmod 1777 tmp && pivot_root . mnt && cd / && umount -l mnt && exec /bin/sh /script "$2"`
		out, err := exec.Command("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "sh", "-c", enter, "enter", root, profile).CombinedOutput()
		if err != nil || !strings.HasSuffix(string(out), "== done\n") {
			t.Errorf("%s: %v\n%s", suite, err, out)
		}
	}
	b.rpm(o.Out, b.dir+"/trixie")
	b.bundle(o.Out)
	trixie, err := fixture.DebianRoot("trixie")
	if err != nil {
		t.Fatal(err)
	}
	b.image(o.Out, trixie)
}

// image builds the image of examples/image on a root, and makes a sandbox in a sandbox of it.
func (b *box) image(dir, archive string) {
	b.Helper()
	for _, args := range [][]string{
		{"import", "-q", archive, "local/base"},
		{"build", "-q", "-f", "../examples/image/Containerfile", "--build-arg", "BASE=local/base", "-t", "local/demesne", dir},
	} {
		cmd := b.command("demesne", args...)
		cmd.Dir = "" // the test's
		if r := b.finish(cmd); r.code != 0 {
			b.Fatalf("%q: %+v", args, r)
		}
	}
	if r := b.demesne("run", "--image", "local/demesne", "--nesting", "--", "run", "--", "echo", "nested"); r.stdout != "nested\n" {
		b.Errorf("%+v", r)
	}
}

// rpm installs, replaces and erases the .rpm in a root. That root is Debian's too: rpm runs outside, and the package's
// scripts inside. It also checks that the .rpm has the files of the .deb.
func (b *box) rpm(dir, root string) {
	b.Helper()
	list := func(script string) string {
		r := b.finish(b.command("/bin/bash", "-ec", "set -o pipefail; export HOME="+b.dir+"; cd "+dir+"; "+script+
			` | sed -E 's,/(licenses/demesne/LICENSE|doc/demesne/copyright)$,/licence,; s,/(vendor-completions|site-functions)/,/,' | sort`))
		if r.code != 0 {
			b.Fatalf("%s: %+v", script, r)
		}
		return r.stdout
	}
	program(b, "dpkg-deb")
	rpm, deb := list("rpm -qp --qf '[%{FILEMODES:perms} %{FILENAMES}\\n]' *.rpm | sed -n 's,^[^d][^ ]* ,,p'"), list("dpkg-deb --fsys-tarfile *.deb | tar -t | grep -v /$ | sed 's,^\\.,,'")
	if rpm != deb || !strings.Contains(rpm, "/usr/libexec/demesne/demesne-runner\n") {
		b.Errorf("the rpm has\n%s\nand the deb\n%s", rpm, deb)
	}
	const script = `set -eu; cd "$1"; export HOME="$2"
rpm -K *.rpm
rpm() { command rpm --root "$root" --dbpath /rpmdb --nodeps "$@"; }
root=$2
rpm -i *.rpm; chroot "$root" demesne version; test -e "$root/etc/apparmor.d/demesne"
rpm -U --replacepkgs *.rpm; chroot "$root" demesne version; test -e "$root/etc/apparmor.d/demesne"
rpm -e demesne; left=$(find "$root/usr" "$root/etc" -name '*demesne*'); echo "left: $left"; [ -z "$left" ]`
	if out, err := exec.Command("/bin/sh", "-c", script, "rpm", dir, root).CombinedOutput(); err != nil {
		b.Errorf("%v\n%s", err, out)
	}
}

// bundle checks the MCP bundle of a release by the published validator, and asks its server for the tools.
func (b *box) bundle(dir string) {
	b.Helper()
	mcpb := cmp.Or(os.Getenv("DEMESNE_MCPB"), "/var/tmp/demesne-mcpb") + "/node_modules/.bin/mcpb"
	if _, err := os.Stat(mcpb); err != nil {
		need(b, false, mcpb+", which integration/deps.sh installs")
	}
	script := `set -e; "$0" unpack "$1"/*.mcpb "$2" >&2; "$0" validate "$2/manifest.json" >&2
exec "$2/server/demesne" mcp`
	cmd := b.command("/bin/sh", "-c", script, mcpb, dir, b.dir+"/bundle")
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
`)
	if r := b.finish(cmd); r.code != 0 || !strings.Contains(r.stderr, "validation passes") || !strings.Contains(r.stdout, `"sandbox_script"`) {
		b.Errorf("bundle: %+v", r)
	}
}
