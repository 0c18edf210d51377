package integration

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// onFullDisk runs shell text in a home directory of a size, such as 12m. It uses a mount namespace and, for an ordinary user, a
// user namespace as well. The shell function fill uses up the space that is left, and empty frees it.
func (b *box) onFullDisk(size, script string) result {
	b.Helper()
	flags := []string{"-m"}
	if os.Getuid() != 0 {
		flags = []string{"-rm"}
	}
	const mount = `mount -t tmpfs -o mode=755,size="$3" home "$1" && cd "$1" || exit 99
		export HOME=$1/home DEMESNE_SANDBOX_ROOT=$1/home/boxes DEMESNE_IMAGE_STORE=$1/home/images; mkdir home
		fill() { head -c 100M /dev/zero > filler 2>/dev/null; test $(df --output=avail . | tail -1) = 0 || exit 98; }
		empty() { rm filler; }
		eval "$2"`
	cmd := b.command(program(b.TB, "unshare"), append(flags, "sh", "-c", mount, "sh", b.mkdir("small"), script, size)...)
	cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"))
	return b.finish(cmd)
}

// TestFullDisk checks that on a full disk a failing command prints one line and a hint, and leaves no files.
// Commands that need no space work: a sandbox can be entered, and its files copied out or removed. A job that
// ends keeps its result.
func TestFullDisk(t *testing.T) {
	need(t, exec.Command("unshare", "-rm", "true").Run() == nil, "user namespaces for unshare")
	b := newBox(t)
	out := b.mkdir("out")
	b.extra = append(b.extra, "OUT="+out)
	r := b.onFullDisk("12m", `
		demesne create --name box --out $OUT/1 >/dev/null && demesne exec box -c 'echo kept > f; head -c 100000 /dev/zero > big' || exit 1
		job=$(demesne run --background --out $OUT/2 -- sh -c 'while ! test -e /out/end; do sleep 0.02; done; echo done; exit 3')
		other=$(demesne run --background --out $OUT/3 -- sleep 1000)
		while ! test -d $OUT/2 || ! test -d $OUT/3 || demesne jobs | grep -q queued; do sleep 0.02; done
		fill
		for args in "create --out $OUT/4" "fork --out $OUT/5 box" "snapshot box" "run --background -- true" "manifest verify --write $HOME/boxes"; do
			demesne $args >$OUT/said 2>&1; echo "$args: $?, $(wc -l < $OUT/said) lines, $(grep -c '^hint: df' $OUT/said) hint"
		done 2>&1 | sed "s:$OUT::; s:$HOME::"
		demesne stop box
		demesne exec box -- cat f 2>/dev/null
		demesne cp box:/workspace/f $OUT/f && cat $OUT/f
		touch $OUT/2/end; demesne wait $job; echo "wait $?"
		demesne cancel $other; echo "cancel $?"
		demesne jobs | awk 'NR > 1 { print $2, $5 }' | sort
		demesne exec box -- rm big || exit 1
		demesne rm box; echo "rm $?"
		left() { find home -name '*.tmp' -o -name '.old-*' -o -name 'base-*' -o -name '.demesne*' ! -name .demesne -o -name '.result*' -o -name room; }
		for i in $(seq 600); do test "$(left 2>/dev/null)" || break; sleep 0.1; done # the runner removes files after rm has returned
		left
		empty
		demesne run -- echo again; demesne ls -q`)
	want := `create --out /4: 125, 2 lines, 1 hint
fork --out /5 box: 125, 2 lines, 1 hint
snapshot box: 125, 2 lines, 1 hint
run --background -- true: 125, 2 lines, 1 hint
manifest verify --write /boxes: 125, 2 lines, 1 hint
kept
kept
wait 3
cancel 0
cancelled 143
failed 3
rm 0
again
`
	if r.stdout != want {
		t.Errorf("exit %d: %s\nwant: %s\nstderr: %s", r.code, r.stdout, want, strings.TrimSpace(r.stderr))
	}
}
