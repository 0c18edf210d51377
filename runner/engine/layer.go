package engine

import (
	"bufio"
	"os"

	"demesne/rootfs/upper"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

// layer writes one of the layers that a stopped sandbox has above its image.
func (e *Engine) layer(t api.LayerRequest, to *os.File) (did runner.Layered, err error) {
	if to == nil {
		return did, ipc.Errorf(ipc.CodeInvalid, "write layer: no file")
	}
	defer to.Close()
	live, rec, err := e.locate(t.Sandbox)
	switch {
	case err != nil:
		return did, err
	case live != nil:
		return did, ipc.Errorf(ipc.CodeBusy, "write layer of sandbox %q: it has processes", live.id)
	}
	d, err := e.keeper()
	if err != nil {
		return did, err
	}
	box, rec, err := take(d, rec.Info.ID)
	if err != nil {
		return did, err
	}
	defer box.Close()
	uppers, release, err := uppersOf(box, rec.Base)
	if err != nil {
		return did, err
	}
	defer release()
	did.Layers = max(len(uppers), 1)
	if t.Layer < 0 || t.Layer >= did.Layers {
		return did, ipc.Errorf(ipc.CodeInvalid, "write layer %d: the sandbox has only %d", t.Layer, did.Layers)
	}
	if len(uppers) == 0 { // a fork that never ran, of a sandbox that never wrote
		return did, nil
	}
	image := rec.Info.Spec.Rootfs != nil
	w := bufio.NewWriterSize(to, 256<<10)
	did.Entries, err = upper.WriteLayer(uppers[t.Layer], w, func(path string) bool { return notItsOwn(path, image) })
	if err == nil {
		err = w.Flush()
	}
	return did, err
}
