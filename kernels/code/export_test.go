package code

// Ready returns how many prepared sessions wait.
func (s *Store) Ready() (n int) {
	s.ahead.mu.Lock()
	defer s.ahead.mu.Unlock()
	for _, shape := range s.ahead.shapes {
		if shape.ready != nil && shape.ready.Death() == nil {
			n++
		}
	}
	return n
}
