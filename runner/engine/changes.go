package engine

import (
	"os"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

// diff lists the changes of a sandbox, live or not, against its image.
func (e *Engine) diff(idOrName string) (*runner.Diff, error) {
	live, rec, err := e.table.locate(idOrName)
	switch {
	case err != nil:
		return nil, err
	case live != nil:
		return live.Diff(idOrName)
	}
	return e.machine.DiffStopped(rec.Info.ID, idOrName)
}

// layer writes one of the layers that a stopped sandbox has above its image.
func (e *Engine) layer(t api.LayerRequest, to *os.File) (did runner.Layered, err error) {
	if to == nil {
		return did, ipc.Errorf(ipc.CodeInvalid, "write layer: no file")
	}
	defer to.Close()
	live, rec, err := e.table.locate(t.Sandbox)
	switch {
	case err != nil:
		return did, err
	case live != nil:
		return did, ipc.Errorf(ipc.CodeBusy, "write layer of sandbox %q: it has processes", live.ID())
	}
	return e.machine.WriteLayer(rec.Info.ID, t.Layer, t.Options, to)
}
