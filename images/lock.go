package images

import (
	"context"
	"fmt"
	"os"

	"demesne/internal/flock"
)

// lock takes the lock that guards index.json and the removal of blobs.
func (s files) lock(ctx context.Context) (*os.File, error) {
	f, err := flock.Open(ctx, s.path("locks/index"), os.O_RDWR|os.O_CREATE, flock.Exclusive)
	if err != nil {
		return nil, fmt.Errorf("lock store: %w", err)
	}
	return f, nil
}
