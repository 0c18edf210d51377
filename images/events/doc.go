// Package events defines the events that demesne-images writes to its stdout: JSON, one [Event] per line.
//
// The package contains only types. images/worker writes the events and package images reads them. The reader
// bounds them, because the unpacking process has read untrusted layers.
package events
