package rootfs

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/rootfs/internal/nstest"
)

// TestHostChromium checks that the tree has what Debian's command for chromium reads, and no keys beside it.
func TestHostChromium(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	etc := t.TempDir()
	if err := os.Mkdir(etc+"/chromium.d", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"default-flags", "extensions", "apikeys"} {
		if err := os.WriteFile(etc+"/chromium.d/"+name, []byte("# "+name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount(etc, "/etc", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount("/etc", unix.MNT_DETACH)
	tree := mounted(t, Layout{})
	out, err := inside(t, tree, "sh", "-c", "cat /etc/chromium.d/*")
	if err != nil || out != "# default-flags\n# extensions\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// withheld lists entries of /etc outside the tree, by the reason.
var withheld = map[string]string{
	"credentials, or URLs that may have a password": "apt chromium environment environment.d fstab gitconfig jupyter krb5.keytab lynx maven/settings.xml " +
		"mercurial mysql npmrc odbc.ini perl pip.conf profile.d puppet python3.11/sitecustomize.py snmp subversion wgetrc",
	"keys, passwords and rights of users": "grid-security gshadow gshadow- gss group- pam.conf pam.d pki/tls/private polkit-1 security shadow shadow- ssh ssl/private subgid " +
		"subgid- subuid subuid- sudo.conf sudo_logsrvd.conf sudoers sudoers.d X11/xdm passwd-",
	"which machine and network this is": "bluetooth bindresvport.blacklist debuginfod ethers hosts.allow hosts.deny iproute2 issue issue.net krb5.conf ldap libnl-3 machine-id motd " +
		"networks NetworkManager resolvconf update-motd.d",
	"services, which no sandbox runs": "alsa apache2 apparmor apparmor.d avahi cron.d cron.daily cron.weekly cups dbus-1 dconf default init.d kamailio lighttpd logcheck logrotate.d " +
		"nginx php postgresql postgresql-common pulse rc0.d redis rsyslog.conf runit sv systemd tmpfiles.d ufw",
	"hardware and the kernel": "binfmt.d depmod.d dkms e2scrub.conf fuse.conf initramfs-tools kernel libaudit.conf modprobe.d modules-load.d openni2 sane.d selinux sensors.d sensors3.conf " +
		"sysctl.conf sysctl.d ts.conf udev",
	"packaging": "adduser.conf blends ca-certificates ca-certificates.conf cdebconf.conf cowpoke.conf debconf.conf deluser.conf doc-base menu menu-methods python3 rmt science-config " +
		"skel ucf.conf",
	"desktops, and programs that work without": "bash_completion.d emacs facter firefox-esr fish libao.conf libpaper.d mailcap.order pd presage.xml thunderbird xdg zsh",
}

// TestHostEtc gives the host an /etc with every row and every entry of withheld. The tree has the former and not the
// latter.
func TestHostEtc(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	etc := t.TempDir()
	put := func(name string, dir bool) {
		if dir {
			name += "/file"
		}
		path := filepath.Join(etc, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("of "+name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range etcRows {
		put(row.name, row.how == bindDir)
	}
	var names []string
	for _, list := range slices.Sorted(maps.Values(withheld)) {
		for name := range strings.FieldsSeq(list) {
			names = append(names, name)
			put(name, filepath.Ext(name) == "" || strings.HasSuffix(name, ".d"))
		}
	}
	if err := unix.Mount(etc, "/etc", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount("/etc", unix.MNT_DETACH)
	tree := mounted(t, Layout{})
	for _, row := range etcRows {
		name := row.name
		if row.how == bindDir {
			name += "/file"
		}
		if got := nstest.Content(tree.Root, "etc/"+name); got != "of "+name+"\n" {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(tree.Root, "etc", name)); err == nil {
			t.Errorf("/etc/%s is in the tree", name)
		}
	}
}
