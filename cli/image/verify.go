package image

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"demesne/cli/progress"
	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/text"
)

// verify removes damaged blobs, so that the next pull fetches them again.
func (o *listOptions) verify() (int, error) {
	return o.WithImages(func(ctx context.Context, c *images.Client) (int, error) {
		damage, err := c.Store.Verify(ctx)
		if err != nil {
			return 0, err
		}
		if err := c.Store.Repair(ctx, damage); err != nil {
			return 0, err
		}
		code := min(len(damage), 1)
		if o.json {
			_, err := o.PrintJSON(damageInfos(damage))
			return code, err
		}
		_, err = o.Print(damageTable(damage))
		return code, err
	})
}

// damageInfo is a damaged file as images check --json prints it.
type damageInfo struct {
	Digest oci.Digest `json:"digest,omitempty"` // empty: the index
	Images []string   `json:"images"`
	Made   []string   `json:"made_here,omitempty"` // names of images that no pull fetches again
	Why    string     `json:"why"`
}

func damageInfos(damage []images.Damage) []damageInfo {
	infos := []damageInfo{}
	for _, d := range damage {
		infos = append(infos, damageInfo{d.Digest, append([]string{}, d.Names...), d.Made, d.Why.Error()})
	}
	return infos
}

// damageTable lists the damage, with the commands that fetch the images again.
func damageTable(damage []images.Damage) string {
	var b strings.Builder
	for _, d := range damage {
		what := "index.json"
		if d.Digest != "" {
			what = "blob " + progress.ShortDigest(d.Digest)
		}
		fmt.Fprintf(&b, "%s: %s; removed\n", what, text.SafeLine(d.Why.Error()))
		for _, full := range d.Names {
			if slices.Contains(d.Made, full) {
				fmt.Fprintf(&b, "    %s was made here: import or commit it again\n", imageref.Short(full))
				continue
			}
			fmt.Fprintf(&b, "    fix: demesne pull %s\n", imageref.Short(full))
		}
	}
	return b.String()
}
