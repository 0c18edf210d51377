package kernels

import "time"

// SetInterruptGrace changes the time that a kernel has for the end of an interrupted execution, until restore is called.
func SetInterruptGrace(d time.Duration) (restore func()) {
	was := interruptGrace
	interruptGrace = d
	return func() { interruptGrace = was }
}
