package integration

import (
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// shapeTools makes local/tools: programs that the shapes need and busybox has not. They do little, but read and write the same files.
const shapeTools = `FROM local/base
COPY --chmod=755 <<"go" <<"cargo" <<"npm" <<"pip" <<"make" <<"apt-get" <<"useradd" <<"groupadd" <<"gosu" <<"javac" <<"bundle" /usr/local/bin/
#!/bin/sh
[ "$1" != mod ] || { mkdir -p /go/pkg && cat go.sum > /go/pkg/mod; exit; }
while [ "$1" != -o ]; do shift; done
mkdir -p "$(dirname "$2")"
{ echo '#!/bin/busybox sh'; echo "echo '$(cat main.go) with $(cat /go/pkg/mod)'"; } > "$2" && chmod 755 "$2"
go
#!/bin/sh
mkdir -p target/release && { echo '#!/bin/busybox sh'; echo "echo '$(cat src/main.rs)'"; } > target/release/app && chmod 755 target/release/app
cargo
#!/bin/sh
case $1 in
ci|install) test -s package.json && mkdir -p node_modules && cat package*.json > node_modules/index;;
run) mkdir -p dist && cat src/* node_modules/index > dist/index;;
esac
npm
#!/bin/sh
for last; do :; done
mkdir -p /usr/local/lib/site-packages /root/.cache/pip && cat "$last" >> /usr/local/lib/site-packages/list && touch /root/.cache/pip/x
pip
#!/bin/sh
case $1 in
install) mkdir -p "$DESTDIR/usr/local/bin" && cp out "$DESTDIR/usr/local/bin/app";;
*) { echo '#!/bin/busybox sh'; echo "echo '$(cat *.c)'"; } > out && chmod 755 out;;
esac
make
#!/bin/sh
mkdir -p /var/lib/apt/lists /var/lib/dpkg && touch /var/lib/apt/lists/x && echo "$*" >> /var/lib/dpkg/log
apt-get
#!/bin/sh
user= uid=1 gid= home=/
while [ $# -gt 0 ]; do
	case $1 in
	--uid|-u) uid=$2; shift;;
	--gid|-g) gid=$2; shift;;
	--home-dir|-d) home=$2; shift;;
	--shell|-s|-c) shift;;
	-*) ;;
	*) user=$1;;
	esac
	shift
done
case $gid in [0-9]*) ;; *) gid=$(grep "^$gid:" /etc/group | cut -d: -f3);; esac
echo "$user:x:$uid:$gid::$home:/bin/sh" >> /etc/passwd
useradd
#!/bin/sh
gid=1
while [ $# -gt 1 ]; do case $1 in --gid|-g) gid=$2; shift;; esac; shift; done
echo "$1:x:$gid:" >> /etc/group
groupadd
#!/bin/sh
user=$1 && shift && exec su -s /bin/sh "$user" -c 'exec "$0" "$@"' -- "$@"
gosu
#!/bin/sh
mkdir -p target && cat src/*.java > target/app.jar
javac
#!/bin/sh
mkdir -p /usr/local/bundle && cat Gemfile > /usr/local/bundle/gems
bundle
`

// TestBuildShapes builds images with the instructions of well-known public Containerfiles, and runs them. Compilers and
// packages are local ones. With one id, the images of several users are built, but not run, and of the others every fourth
// is built: what a step gets is the same.
func TestBuildShapes(t *testing.T) {
	withIDs(t, func(t *testing.T, g *gallery, one bool) {
		s := newSite(t, g)
		s.base()
		s.build(shapeTools, "-t", "local/tools")
		for i, c := range buildCases(t, "testdata/shapes.cases") {
			if one && !c.ids && i%4 != 0 {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				file, dir := c.prepare(t, s.gallery)
				name := "local/" + c.name
				r := s.do(append(append([]string{"build", "--egress", "none", "--progress", "plain", "-t", name, "-f", file}, c.flags...), dir)...)
				c.check(t, r)
				if r.code != 0 || c.run == "" || c.ids && one {
					return
				}
				words := []string{"run", "--image", name}
				if c.run != "CMD\n" {
					words = append(words, "-c", c.run)
				}
				if r := s.do(words...); r.code != 0 || r.stdout != c.want {
					t.Errorf("run: %+v\nwant\n%s", r, c.want)
				}
			})
		}
	})
}

// TestBuildDebian checks that apt, useradd and chown work in RUN over a real Debian, and whose the files are in the image.
// With one id a RUN cannot give a file another owner, and the build says so once.
func TestBuildDebian(t *testing.T) {
	img, err := fixture.Debian(fixture.PythonLayer, fixture.NodeLayer)
	if err != nil {
		need(t, false, err.Error())
	}
	withIDs(t, func(t *testing.T, g *gallery, one bool) {
		if err := g.reg.Push("docker/library/debian:latest", img); err != nil {
			t.Fatal(err)
		}
		g.mirror(t)
		s := &site{g, g.dir + "/mirror"}
		g.ok("pull", "debian")
		file := g.file("Containerfile", `FROM debian
RUN --mount=type=bind,source=deb,target=/deb rm -rf /etc/apt/sources.list* && echo 'deb [trusted=yes] file:/deb ./' > /etc/apt/sources.list \
  && apt-get update && apt-get install -y greet && rm -rf /var/lib/apt/lists/* && greet
RUN useradd -m -s /bin/bash -G staff bob && groupadd -g 4444 team && touch /home/bob/f && chown bob:team /home/bob/f
USER bob
WORKDIR /home/bob/work
RUN touch mine && id -u > who
USER root
RUN stat -c '%u:%g' /home/bob/f > /seen
`, 0o644)
		r := s.do("build", "--egress", "none", "--progress", "plain", "-t", "local/app", "-f", file, s.ctx)
		if r.code != 0 || !strings.Contains(r.stderr, "hello from a package") {
			t.Fatalf("build: %+v", r)
		}
		owners := g.finish(g.command("/bin/sh", "-c", bin+"/demesne export local/app | tar tv --numeric-owner | awk '{print $2, $6}' | grep -E ' (home/bob/f|home/bob/work/|home/bob/work/mine|var/lib/greet/mail)$' | sort -k 2"))
		seen := g.inside("local/app", "cat /seen /home/bob/work/who; id -u greeter", "--user", "0")
		greeter := strings.TrimSpace(seen[strings.LastIndex(strings.TrimSpace(seen), "\n")+1:])
		wantOwners, wantSeen, notes := "1000/4444 home/bob/f\n1000/1000 home/bob/work/\n1000/1000 home/bob/work/mine\n"+greeter+"/8 var/lib/greet/mail\n", "1000:4444\n1000\n", 0
		if one { // the owner of WORKDIR is recorded; a RUN cannot change owners
			wantOwners, wantSeen, notes = "0/0 home/bob/f\n1000/1000 home/bob/work/\n0/0 home/bob/work/mine\n0/0 var/lib/greet/mail\n", "0:0\n0\n", 1
		}
		if owners.stdout != wantOwners || seen != wantSeen+greeter+"\n" {
			t.Errorf("owners:\n%swant\n%sseen:\n%swant\n%s", owners.stdout, wantOwners, seen, wantSeen)
		}
		if got := strings.Count(r.stderr, "this machine gives one user id"); got != notes {
			t.Errorf("%d notes, want %d: %s", got, notes, r.stderr)
		}
	})
}
