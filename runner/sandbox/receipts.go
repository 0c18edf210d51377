package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"demesne/runner"
)

// receipts is the part of a sandbox that holds its receipt. The sandbox's mu guards its fields after state.
type receipts struct {
	*state
	now    *runner.Receipt // never changed, only replaced; nil before the sandbox is made
	of     *runner.Receipt // text is of it
	digest string
	text   []byte // sent with the results of many commands
}

// encoded returns the receipt's digest and, unless the caller has that receipt already, its text.
func (r *receipts) encoded(known string) (digest string, text []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of != r.now {
		b, err := json.Marshal(r.now)
		if err != nil {
			return "", nil
		}
		sum := sha256.Sum256(b)
		r.of, r.digest, r.text = r.now, hex.EncodeToString(sum[:8]), b
	}
	if r.digest == known {
		return known, nil
	}
	return r.digest, r.text
}

// setNetwork replaces what the receipt says about the network. mu is held.
func (r *receipts) setNetwork(word string, newer []runner.Layer) {
	changed := *r.now
	changed.Network, changed.Layers = word, withLayers(changed.Layers, newer)
	r.now = &changed
}

// setLimits replaces what the receipt says about limits. mu is held.
func (r *receipts) setLimits(limits []runner.LimitReceipt) {
	changed := *r.now
	changed.Limits = append(limits, without(changed.Limits, limits)...)
	r.now = &changed
}

// without returns the limits of a receipt that newer ones do not replace. It is pure.
func without(all, newer []runner.LimitReceipt) []runner.LimitReceipt {
	return slices.DeleteFunc(slices.Clone(all), func(l runner.LimitReceipt) bool {
		return slices.ContainsFunc(newer, func(n runner.LimitReceipt) bool { return n.Name == l.Name })
	})
}

// withLayers returns the layers of a receipt, with newer ones in place of layers with the same names. It is pure.
func withLayers(all, newer []runner.Layer) []runner.Layer {
	all = slices.Clone(all)
	for i, l := range all {
		if n := slices.IndexFunc(newer, func(x runner.Layer) bool { return x.Name == l.Name }); n >= 0 {
			all[i] = newer[n]
		}
	}
	return all
}
