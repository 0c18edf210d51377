package operate

import (
	"encoding/json"
	"net/http"
)

// refuse answers with an error in the shape of /v1.
func refuse(w http.ResponseWriter, status int, text string) {
	answer(w, status, struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    []int  `json:"data"`
	}{status, text, []int{}})
}

func answer(w http.ResponseWriter, status int, what any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(what)
}
