package limits

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"demesne/runner/limits/cgroup"
)

const (
	// trial is created and removed to test whether a directory accepts groups.
	trial = "demesne-trial"

	busTimeout = 5 * time.Second
)

// prepared finds the groups that cgroup.Prepare made for key.
func prepared(key string, _ *discovery) ([]*hierarchy, error) {
	self, err := cgroup.Self()
	if err != nil {
		return nil, err
	}
	var hierarchies []*hierarchy
	errs := []error{errNone}
	for _, m := range self {
		var on []string
		for _, c := range cgroup.Controllers {
			if m.Has(c) {
				on = append(on, c)
			}
		}
		if m.V2 || len(on) == 0 {
			continue
		}
		p, err := preparedV1(m, key, on)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		hierarchies = append(hierarchies, p)
	}
	if p, err := preparedV2(key); err == nil {
		hierarchies = append(hierarchies, p)
	} else if !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	if len(hierarchies) == 0 {
		return nil, errors.Join(errs[min(1, len(errs)-1):]...)
	}
	return hierarchies, nil
}

func preparedV1(m cgroup.Membership, key string, controllers []string) (*hierarchy, error) {
	at, err := cgroup.Own(m)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	dir, err := at.Sub(cgroup.Name(key))
	if err != nil {
		return nil, err
	}
	if err := try(dir); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return &hierarchy{version: 1, dir: dir, controllers: controllers}, nil
}

// preparedV2 uses the group at the top of a mount, if cgroup.Enter has moved the runner into it.
func preparedV2(key string) (*hierarchy, error) {
	mounts, err := cgroup.Mounts()
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		if !m.V2 {
			continue
		}
		dir, err := cgroup.Open(filepath.Join(m.Point, cgroup.Name(key)))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		pids, err := dir.Procs()
		dir.Close()
		if err != nil {
			return nil, err
		}
		if !slices.Contains(pids, os.Getpid()) {
			return nil, errors.New("the runner was not moved into the cgroup prepared for it")
		}
		return delegate()
	}
	return nil, os.ErrNotExist
}

// own uses the group the runner was started in. The group must be delegated, contain no other processes, and
// have the controller ("" for any).
func own(controller string, mine *discovery) ([]*hierarchy, error) {
	dir, err := mine.open()
	if err != nil {
		return nil, err
	}
	if err := usable(dir, controller); err != nil {
		return nil, err
	}
	p, err := delegate()
	if err != nil {
		return nil, err
	}
	return []*hierarchy{p}, nil
}

func ownGroup() (*cgroup.Dir, error) {
	self, err := cgroup.Self()
	if err != nil {
		return nil, err
	}
	m, ok := cgroup.Find(self, "")
	if !ok {
		return nil, errors.New("no cgroup2")
	}
	return cgroup.Own(m)
}

func usable(dir *cgroup.Dir, controller string) error {
	have, err := dir.Read("cgroup.controllers")
	if err != nil {
		return err
	}
	switch words := strings.Fields(have); {
	case controller != "" && !slices.Contains(words, controller):
		return fmt.Errorf("no %s controller", controller)
	case !slices.ContainsFunc(words, func(c string) bool { return slices.Contains(cgroup.Controllers, c) }):
		return errors.New("no memory, pids or cpu controller")
	case !dir.Owned():
		return errors.New("it is not delegated")
	}
	pids, err := dir.Procs()
	if err != nil {
		return err
	}
	if s := strangers(pids, family(os.Getpid())); s > 0 {
		return fmt.Errorf("%d other processes are in it", s)
	}
	return nil
}

// scope asks the user's systemd for a group.
func scope(key string, _ *discovery) ([]*hierarchy, error) {
	if !hasBus() {
		return nil, errNoBus
	}
	ctx, cancel := context.WithTimeout(context.Background(), busTimeout)
	defer cancel()
	// The name includes the process id, because an older runner's scope may still be ending.
	name := fmt.Sprintf("demesne-%s-%d.scope", key, os.Getpid())
	if err := startScope(ctx, name, os.Getpid()); err != nil {
		return nil, err
	}
	p, err := delegate()
	if err != nil {
		return nil, err
	}
	return []*hierarchy{p}, nil
}
