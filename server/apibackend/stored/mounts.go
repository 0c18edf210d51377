package stored

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"demesne/runner"
	"demesne/runner/client"
	"demesne/server"
	"demesne/server/apibackend/kinds"
	"demesne/session"
	"demesne/session/cow"
	"demesne/session/operator"
)

// Asker returns who sends a request.
func Asker(ctx context.Context) operator.Asker {
	return operator.Asker{Operator: server.CallerOf(ctx).Operator, Own: server.OwnUser(ctx)}
}

// Mount adds the mounts of a request to a sandbox, with read-only ones over what programs of this machine would execute. Beside
// them there is no open network. changes has those that are kept apart; nil: none are.
func (b *Images) Mount(ctx context.Context, all []session.HostMount, o *session.CreateOptions) (changes *cow.Set, err error) {
	if len(all) == 0 {
		return nil, nil
	}
	o.Egress.OpenWithInputs = false
	mounts := make([]runner.Mount, len(all))
	var apart []*runner.Mount
	for i, m := range all {
		own := false
		if mounts[i], own, err = b.Policy.Mount(Asker(ctx), m); err != nil {
			return nil, kinds.Invalid(err)
		}
		if own {
			apart = append(apart, &mounts[i])
		}
	}
	if changes, err = cow.New(apart); err != nil {
		return nil, err
	}
	slices.SortStableFunc(mounts, func(a, b runner.Mount) int {
		return cmp.Compare(strings.Count(a.Target, "/"), strings.Count(b.Target, "/"))
	})
	covers, err := client.CoverHome(mounts...)
	for _, m := range mounts {
		if err == nil && m.Written() == m.Source {
			var guards []runner.Mount
			guards, _, err = cow.Guards(m, mounts)
			covers = append(covers, guards...)
		}
	}
	if err != nil {
		changes.Undo()
		return nil, kinds.Of(err)
	}
	o.Spec.Mounts = slices.Concat(o.Spec.Mounts, mounts, covers)
	return changes, nil
}

// Changes returns the changes that are kept apart for a sandbox; nil: nothing is kept apart.
func (b *Images) Changes(sandbox string) *cow.Set {
	changes, _ := cow.Find(sandbox)
	return changes
}
