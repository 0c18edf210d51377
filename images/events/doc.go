// Package events is what demesne-images tells whoever started it, and how: JSON on its stdout, one [Event] a line.
//
// It is words only: demesne-images writes them (cmd/demesne-images), and package images reads them, bounded,
// for the process that unpacks has read what strangers made.
package events
