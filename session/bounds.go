package session

import (
	"cmp"
	"time"

	"demesne/runner"
)

// DefaultMemory describes the memory limit of a sandbox where neither its caller nor the operator sets one: package operator
// decides it.
const DefaultMemory = "half the memory"

// Bounds are what an operator gives the callers of a namespace. Package operator decides by them. The zero value has no bound of its own.
type Bounds struct {
	Image  string        // of a sandbox whose caller names none
	Egress string        // the widest mode
	Limits runner.Limits // of a sandbox whose caller asks for none

	Max          runner.Limits // the most that a caller may ask for; 0: as in Limits, or no bound
	MaxTimeout   time.Duration // of a command; 0: none
	MaxSandboxes int
	MaxCost      float64 // US dollars of an agent with its children
	MaxTokens    int64   // of an agent with its children

	MaxStored, MaxFiles, MaxVolumes, MaxSnapshots, MaxTemplates int64 // that a namespace stores; 0: the default

	AllowedImages  []string
	AllowedDomains []string // rules of package policy
	AllowedMounts  []string // directories of this machine for callers of a namespace, DIR or DIR:rw
	Rate           float64  // requests a second
	MaxRunning     int      // commands
	MaxWaiting     int
	Agents         bool // in a namespace
}

// Over returns b with the bounds of below where b has none. What a namespace stores, runs and may do is only b's.
func (b Bounds) Over(below Bounds) Bounds {
	b.Image, b.Egress = cmp.Or(b.Image, below.Image), cmp.Or(b.Egress, below.Egress)
	b.Max, b.MaxTimeout = b.Max.Over(below.Max), cmp.Or(b.MaxTimeout, below.MaxTimeout)
	b.MaxCost, b.MaxTokens = cmp.Or(b.MaxCost, below.MaxCost), cmp.Or(b.MaxTokens, below.MaxTokens)
	if len(b.AllowedImages) == 0 {
		b.AllowedImages = below.AllowedImages
	}
	if len(b.AllowedDomains) == 0 {
		b.AllowedDomains = below.AllowedDomains
	}
	if len(b.AllowedMounts) == 0 {
		b.AllowedMounts = below.AllowedMounts
	}
	return b
}
