package rootfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/moby/sys/user"
	"golang.org/x/sys/unix"
)

// Users holds an image's /etc/passwd and /etc/group as they were before any command ran. The zero Users has no
// users.
type Users struct{ passwd, group []byte }

// Account is the user that a command runs as.
type Account struct {
	User
	Groups []uint32 // supplementary
	Home   string   // absolute; "/" if unknown
}

// ErrNoUser reports that an image has no such user or group.
var ErrNoUser = errors.New("the image has no such user")

// usersMax bounds the size in bytes of each file.
const usersMax = 1 << 20

// readUsers reads the files in the tree below root. A missing one counts as empty.
func readUsers(root int) (Users, error) {
	var u Users
	for name, into := range map[string]*[]byte{"etc/passwd": &u.passwd, "etc/group": &u.group} {
		var err error
		if *into, err = readWithin(root, name, usersMax); err != nil {
			return Users{}, fmt.Errorf("read /%s: %w", name, err)
		}
	}
	return u, nil
}

// readWithin reads a regular file of an image. A missing file, or one that is not regular, counts as empty.
func readWithin(root int, name string, limit int64) ([]byte, error) {
	fd, err := dir{fd: root}.within(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if absent(err) || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ENXIO) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = fmt.Errorf("more than %d bytes", limit)
	}
	return content, err
}

// Lookup resolves a USER of an image by docker's rules: "", name, uid, name:group, uid:gid or any mix. A number
// need not be known; its group is then 0. "" is uid 0. If spec names a group, the account has no supplementary
// groups; otherwise it has those that list the user.
func (u Users) Lookup(spec string) (Account, error) {
	if spec != "" && strings.Trim(spec, ":") != spec {
		return Account{}, fmt.Errorf("find user %q: empty name", spec)
	}
	found, err := user.GetExecUser(spec, &user.ExecUser{Home: "/"}, bytes.NewReader(u.passwd), bytes.NewReader(u.group))
	switch {
	case errors.Is(err, user.ErrNoPasswdEntries), errors.Is(err, user.ErrNoGroupEntries):
		return Account{}, fmt.Errorf("find user %q: %w", spec, ErrNoUser)
	case err != nil:
		return Account{}, fmt.Errorf("find user %q: %w", spec, err)
	}
	a := Account{Home: found.Home}
	if !strings.HasPrefix(a.Home, "/") || strings.ContainsRune(a.Home, 0) {
		a.Home = "/"
	}
	ids := append([]int{found.Uid, found.Gid}, found.Sgids...)
	for _, id := range ids {
		if id < 0 || int64(id) >= 1<<31 {
			return Account{}, fmt.Errorf("find user %q: id %d: out of range", spec, id)
		}
	}
	a.User = User{uint32(found.Uid), uint32(found.Gid)}
	for _, id := range found.Sgids {
		a.Groups = append(a.Groups, uint32(id))
	}
	return a, nil
}
