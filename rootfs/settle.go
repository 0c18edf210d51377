package rootfs

import "os"

func Settle(dir *os.File) error                                { return nil }
func Usage(dir *os.File, limit int64) (bytes int64, err error) { return 0, nil }
