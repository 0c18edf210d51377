package hostcmd

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

var errWide = errors.New("matches any command")

// wrappers execute a command that is among their arguments, behind a number of operands. A name may have further words. This
// table and interpreters are a help for operators, and cannot be complete.
var wrappers = []struct {
	operands int
	names    string // between commas
}{
	{0, "aa-exec,busybox,bwrap,choom,cpulimit,dbus-run-session,doas,entr,env,eval,exec,fakeroot,firejail,hyperfine,ionice,ltrace,nice,nohup,nsenter,parallel,pkexec,prlimit,proot"},
	{0, "setpriv,setsid,start-stop-daemon,stdbuf,strace,sudo,systemd-inhibit,systemd-run,time,torsocks,toybox,unbuffer,unshare,valgrind,watch,xargs"},
	{1, "chroot,chrt,faketime,flock,numactl,rsh,runcon,runuser,script,setarch,sg,ssh,su,taskset,timeout"},
	{1, "docker create,docker exec,docker run,docker container create,docker container exec,docker container run,docker compose exec,docker compose run"},
	{1, "podman create,podman exec,podman run,podman container exec,podman container run,nerdctl exec,nerdctl run,buildah run,lxc exec,incus exec,machinectl shell"},
	{1, "kubectl debug,kubectl exec,kubectl run,oc exec,oc rsh,oc run,oc debug"},
	{0, "git bisect run,git submodule foreach,npm exec,npm x,pnpm exec,pnpm dlx,yarn exec,yarn dlx,bundle exec,poetry run,uv run,go run,conda run,tmux new-session,tmux new"},
}

// interpreters execute what their first operand or an option says: a script, a subcommand, a file of rules. Names have no
// digits and dots at their end here.
var interpreters = []string{
	"ash,bash,csh,dash,fish,ksh,mksh,pwsh,rbash,sh,tcsh,zsh,awk,gawk,mawk,nawk,bun,dc,deno,elixir,erl,expect,gdb,ghci,guile,iex,irb,java,jrunscript,jshell,julia,lldb,lua,luajit",
	"node,nodejs,octave,perl,php,pypy,python,R,Rscript,ruby,scala,tclsh,wish",
	"ed,emacs,ex,less,man,more,most,nano,nvim,pg,pico,rview,rvim,vi,view,vim,vim.basic,vim.nox,vim.tiny,vimdiff",
	"ansible,ansible-playbook,ant,cmake,gmake,gradle,just,make,meson,mvn,ninja,rake,task,terraform",
	"bundle,cargo,composer,conda,gem,go,npm,npx,pip,pipx,pnpm,poetry,uv,uvx,yarn,apk,apt,apt-get,dnf,dpkg,flatpak,pacman,rpm,snap,yum",
	"buildah,crictl,ctr,docker,helm,incus,kubectl,lxc,machinectl,nerdctl,oc,podman",
	"cpio,dd,fd,find,git,hg,rsync,sed,svn,tar,zip,mongo,mongosh,mysql,psql,redis-cli,sqlite",
	"at,batch,crontab,ncat,run-parts,screen,socat,tmux",
}

// among reports whether line, names separated by commas, contains name.
func among(line, name string) bool { return slices.Contains(strings.Split(line, ","), name) }

func isWild(word string) bool { return strings.Contains(word, one) }

// programName returns the name by which the tables know a program.
func programName(word string) string {
	name := path.Base(word)
	if short := strings.TrimRight(name, "0123456789."); short != "" {
		return short
	}
	return name
}

// checkWide refuses a pattern with a wildcard in the place of a command: its program, what a wrapper executes, or what an
// interpreter obeys.
func checkWide(words []string) error {
	r := &reading{words: words, known: map[place]bool{}}
	if r.program(0) {
		return fmt.Errorf("%q executes its arguments, so this %w", words[0], errWide)
	}
	return nil
}

// reading finds the places where a command may begin. Which options of a program have a value is not known: each is read
// both ways.
type reading struct {
	words []string
	known map[place]bool // each place is looked at once
}

// place is a word before which some operands are left.
type place struct {
	at, operands int
	script       bool // the operand is a script for an interpreter
}

// program reports whether the command that begins at a word is any command.
func (r *reading) program(at int) bool {
	if isWild(r.words[at]) {
		return true
	}
	name := programName(r.words[at])
	for n := min(3, len(r.words)-at); n > 0; n-- {
		key := strings.Join(append([]string{name}, r.words[at+1:at+n]...), " ")
		for _, row := range wrappers {
			if among(row.names, key) {
				return r.operand(place{at: at + n, operands: row.operands})
			}
		}
	}
	if !slices.ContainsFunc(interpreters, func(line string) bool { return among(line, name) }) {
		return false
	}
	return r.afterOption(at) || r.operand(place{at: at + 1, script: true})
}

// afterOption reports whether a wildcard of an interpreter's arguments may be the value of an option.
func (r *reading) afterOption(at int) bool {
	for i := at + 2; i < len(r.words); i++ {
		if isWild(r.words[i]) && strings.HasPrefix(r.words[i-1], "-") {
			return true
		}
	}
	return false
}

// operand reports whether the command behind some operands is any command.
func (r *reading) operand(p place) bool {
	if p.at >= len(r.words) {
		return false
	}
	if wide, found := r.known[p]; found {
		return wide
	}
	wide, next, word := false, p, r.words[p.at]
	next.at++
	switch {
	case strings.HasPrefix(word, "-"):
		valued := next
		valued.at++
		wide = r.operand(next) || r.operand(valued)
	case isWild(word):
		wide = true
	case strings.Contains(word, "=") && !p.script: // a variable for the command
		wide = r.operand(next)
	case p.operands > 0:
		next.operands--
		wide = r.operand(next)
	case !p.script:
		wide = r.program(p.at)
	}
	r.known[p] = wide
	return wide
}
