package client

import "time"

// Envelope is the answer of a request about files: Code is 0, and Data has the result. A request that failed has an
// [Error], whose Code is the HTTP status.
type Envelope[T any] struct {
	Code    int    `json:"code" doc:"0"`
	Message string `json:"message" example:"success"`
	Data    T      `json:"data"`
}

// PathRequest names a file. A relative path begins at /workspace.
type PathRequest struct {
	Path string `json:"path" minLength:"1" maxLength:"4096" example:"/workspace/notes.txt"`
}

// ReadRequest asks for a file's content.
type ReadRequest struct {
	PathRequest
	Base64 bool  `json:"base64,omitempty" doc:"Answer with base64, whatever the content is"`
	Offset int64 `json:"offset,omitempty" minimum:"0" doc:"The first byte"`
	Limit  int64 `json:"limit,omitempty" minimum:"0" maximum:"8388608" doc:"Bytes; 0: 8 MiB. /files/raw has no bound"`
}

// Content is the content of a file, as text or in base64.
type Content struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	Base64  bool   `json:"base64" doc:"The content is in base64: it was asked for, or is not UTF-8"`
	Size    int64  `json:"size" doc:"The size of the whole file"`
	Cut     bool   `json:"truncated,omitempty" doc:"The file goes on"`
}

// WriteRequest replaces a file's content, and makes missing directories.
type WriteRequest struct {
	PathRequest
	Content string `json:"content"`
	Base64  bool   `json:"base64,omitempty" doc:"The content is in base64"`
}

// EditRequest replaces a passage of a text file.
type EditRequest struct {
	PathRequest
	Old string `json:"old_string" minLength:"1"`
	New string `json:"new_string"`
	All bool   `json:"replace_all,omitempty" doc:"Every occurrence; else it must occur once"`
}

// Edited is the result of an edit.
type Edited struct {
	Replaced int `json:"replaced"`
	Line     int `json:"line" doc:"The line of the first replacement"`
}

// ListRequest asks for the entries of a directory.
type ListRequest struct {
	Path  string `json:"path,omitempty" maxLength:"4096" doc:"Empty: /workspace"`
	Depth int    `json:"depth,omitempty" minimum:"0" maximum:"64" doc:"0: 1"`
}

// TwoPaths asks to move or copy a file or directory.
type TwoPaths struct {
	Source      string `json:"source" minLength:"1" maxLength:"4096"`
	Destination string `json:"destination" minLength:"1" maxLength:"4096"`
}

// File describes a file.
type File struct {
	Name     string    `json:"name"`
	Path     string    `json:"path"`
	Type     string    `json:"type" enum:"file,directory,link,other"`
	IsDir    bool      `json:"is_dir"`
	Size     int64     `json:"size"`
	Mode     string    `json:"mode" example:"-rw-r--r--"`
	Owner    string    `json:"owner,omitempty"`
	Group    string    `json:"group,omitempty"`
	ModTime  int64     `json:"mod_time_unix"`
	Modified time.Time `json:"modified"`
	Target   string    `json:"target,omitempty" doc:"The target of a link"`
}

// Exists says whether a file exists.
type Exists struct {
	Exists bool  `json:"exists"`
	File   *File `json:"file,omitempty"`
}

// GlobRequest asks for files by name.
type GlobRequest struct {
	Pattern string `json:"pattern" minLength:"1" maxLength:"4096" example:"**/*.go"`
	Path    string `json:"path,omitempty" maxLength:"4096" doc:"Empty: /workspace"`
}

// Paths are the files that a pattern matches.
type Paths struct {
	Paths []string `json:"paths" nullable:"false"`
	Cut   bool     `json:"truncated,omitempty"`
}

// GrepRequest asks for lines that match a regular expression (RE2).
type GrepRequest struct {
	Pattern    string `json:"pattern" minLength:"1" maxLength:"4096"`
	Path       string `json:"path,omitempty" maxLength:"4096" doc:"A directory or a file; empty: /workspace"`
	Glob       string `json:"glob,omitempty" maxLength:"4096" doc:"Only files that match"`
	IgnoreCase bool   `json:"case_insensitive,omitempty"`
	Context    int    `json:"context_lines,omitempty" minimum:"0" maximum:"50"`
	Mode       string `json:"output_mode,omitempty" enum:"content,files_only,count" doc:"Empty: content"`
	Limit      int    `json:"limit,omitempty" minimum:"0" maximum:"10000" doc:"Lines or files; 0: 1000"`
	MaxLine    int    `json:"max_line_length,omitempty" minimum:"0" doc:"Bytes of a line; 0: no bound"`
}

// Matches is the result of a search.
type Matches struct {
	Output  string      `json:"output" doc:"The lines below as text: PATH:LINE:TEXT"`
	Lines   []MatchLine `json:"lines,omitempty"`
	Files   []MatchFile `json:"files,omitempty" doc:"In the other modes"`
	Matches int         `json:"matches"`
	Cut     bool        `json:"truncated"`
}

// MatchLine is a line that matches, or one beside it.
type MatchLine struct {
	Path    string `json:"path"`
	Line    int    `json:"line"`
	Text    string `json:"text"`
	Context bool   `json:"context,omitempty"`
}

// MatchFile is a file with matches.
type MatchFile struct {
	Path  string `json:"path"`
	Count int    `json:"count,omitempty"`
}
