package upper

import "strings"

// caches are directories that programs fill again by themselves, by the ends of their paths. A file there is never in
// conflict: [Over.Apply] replaces what the caller's programs wrote meanwhile.
var caches = []string{
	"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", "node_modules/.cache", ".parcel-cache", ".turbo", ".next/cache", ".nyc_output",
	".sass-cache", ".gradle/caches",
}

// cached reports whether a relative path names a cache, or a file in one.
func cached(file string) bool {
	for _, dir := range caches {
		if strings.Contains("/"+file+"/", "/"+dir+"/") {
			return true
		}
	}
	return false
}
