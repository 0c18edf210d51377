package e2b

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"demesne/internal/fsutil"
	"demesne/session"
)

// built is an image that a build makes or has made. Its record is written before the build and removed after the image, so
// that the next server finds what a killed one left.
type built struct {
	Template string           `json:"template"`
	Build    string           `json:"build"`
	Fixed    Stored           `json:"fixed"`             // what it counts in addition to its blobs
	Blobs    map[string]int64 `json:"blobs"`             // that are not of the operator's base: size by digest
	Private  bool             `json:"private,omitempty"` // its base has the name privateOf, until the build ends

	making bool
}

// pictures counts the images of templates in the ledger, each blob once. A blob counts until no image of the namespace has
// it: the image of one template may have the layers of another.
type pictures struct {
	store   *store
	records fsutil.Records[built]
	turn    sync.Mutex // held while images are removed

	mu    sync.Mutex
	all   map[string]*built // by build
	users map[string]int    // images of the namespace that have a blob
}

// open reads the records. A template of an earlier version has none: its image does not count, but is removed too.
func (p *pictures) open() error {
	p.records, p.users = recordsOf[built](p.store.dir, "built"), map[string]int{}
	all, err := p.records.Load()
	if err != nil {
		return err
	}
	p.all = all
	for _, b := range all {
		p.store.ledger.add(b.Fixed)
		p.store.ledger.add(Stored{Bytes: p.use(b.Blobs)})
	}
	for _, t := range p.store.templates {
		for _, tag := range t.Tags {
			if p.all[tag.Build] == nil {
				p.all[tag.Build] = &built{Template: t.ID, Build: tag.Build}
			}
		}
	}
	return nil
}

// use counts the blobs of one more image, and returns the bytes that the namespace did not have. mu is held.
func (p *pictures) use(blobs map[string]int64) (n int64) {
	for d, size := range blobs {
		if p.users[d]++; p.users[d] == 1 {
			n += size
		}
	}
	return n
}

// unuse is the reverse of use.
func (p *pictures) unuse(blobs map[string]int64) (n int64) {
	for d, size := range blobs {
		if p.users[d]--; p.users[d] == 0 {
			delete(p.users, d)
			n += size
		}
	}
	return n
}

// fixedOf returns what an image counts in addition to the content of its blobs: entries for its manifest and configuration, and
// for the layer and the kept result of each step.
func fixedOf(steps int) Stored {
	n := int64(2*steps + 2)
	return Stored{Bytes: n * entryCost, Files: n}
}

// begin counts an image that will be built. It fails if there is no room for it. private means that its base needs a login.
func (p *pictures) begin(b *build, steps int, private bool) error {
	one := &built{Template: b.template.ID, Build: b.id, Fixed: fixedOf(steps), Private: private, making: true}
	need := one.Fixed.plus(Stored{Bytes: 1}) // a ledger that is full afterwards has no room for a layer
	err := p.store.ledger.take(need)
	if err != nil {
		p.collect() // an image may be free by now
		err = p.store.ledger.take(need)
	}
	if err != nil {
		return err
	}
	p.store.ledger.add(Stored{Bytes: -1})
	if err := p.records.Put(b.id, one); err != nil {
		p.store.ledger.add(one.Fixed.negative())
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all[b.id] = one
	return nil
}

// added returns the blobs of an image that count: blobs that are not in its base, and blobs of the base that the namespace's
// own images use.
func (p *pictures) added(image, base map[string]int64) map[string]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := maps.Clone(image)
	maps.DeleteFunc(n, func(d string, _ int64) bool { _, below := base[d]; return below && p.users[d] == 0 })
	return n
}

// made counts the blobs of a build's image in place of what was reserved for them. After an error neither counts.
func (p *pictures) made(id string, blobs map[string]int64, reserved int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.use(blobs)
	err := p.store.ledger.take(Stored{Bytes: n - reserved})
	one := p.all[id]
	if err == nil {
		one.Blobs = blobs
		if err = p.records.Put(id, one); err == nil {
			return nil
		}
		one.Blobs = nil
		p.store.ledger.add(Stored{Bytes: reserved - n})
	}
	p.unuse(blobs)
	p.store.ledger.add(Stored{Bytes: -reserved})
	return err
}

// end says that a build has ended. Without a discarded image, what its intermediate images left is still in the store:
// discarding a name that no image has removes that.
func (p *pictures) end(id string) {
	p.mu.Lock()
	one := p.all[id]
	one.making = false
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), collectTime)
	defer cancel()
	if err := p.dropBase(ctx, one); err != nil {
		p.store.opts.Log.Printf("remove base of template %s: %v", one.Template, err)
	}
	if p.collect() > 0 {
		return
	}
	if err := p.store.backend.Discard(ctx, imageOf(one.Template, "none")); err != nil {
		p.store.opts.Log.Printf("remove intermediate images of template %s: %v", one.Template, err)
	}
}

// dropBase takes the name from a private base. Its layers stay while the image has them.
func (p *pictures) dropBase(ctx context.Context, one *built) error {
	if !one.Private {
		return nil
	}
	return p.store.backend.Discard(ctx, privateOf(one.Template, one.Build))
}

// collectTime bounds the removal of images.
const collectTime = 5 * time.Minute

// collect removes the images that no template names, and returns how many. One that a sandbox uses counts until a later call.
func (p *pictures) collect() (n int) {
	p.turn.Lock()
	defer p.turn.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), collectTime)
	defer cancel()
	for _, one := range p.unnamed() {
		err := errors.Join(p.dropBase(ctx, one), p.store.backend.Discard(ctx, imageOf(one.Template, one.Build)))
		if err != nil && !errors.Is(err, session.ErrConflict) {
			p.store.opts.Log.Printf("remove image of template %s: %v", one.Template, err)
		}
		if err != nil {
			continue
		}
		n++
		p.records.Remove(one.Build)
		p.mu.Lock()
		delete(p.all, one.Build)
		p.store.ledger.add(one.Fixed.plus(Stored{Bytes: p.unuse(one.Blobs)}).negative())
		p.mu.Unlock()
	}
	return n
}

// unnamed returns the images that no template names, and none will: a tag is moved from a tag to another one.
func (p *pictures) unnamed() (all []*built) {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	named := map[string]bool{}
	for _, t := range p.store.templates {
		for _, tag := range t.Tags {
			named[tag.Build] = true
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, one := range p.all {
		if !one.making && !named[id] {
			all = append(all, one)
		}
	}
	return all
}
