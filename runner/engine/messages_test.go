package engine

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"
)

// fill sets every field of v. Pointers and lists get n values.
func fill(v reflect.Value, n int) {
	switch to := v.Addr().Interface().(type) {
	case *netip.Addr:
		*to = netip.MustParseAddr("10.0.0.1")
		return
	case *json.RawMessage:
		*to = json.RawMessage(`{"a":[1]}`)
		return
	case *time.Time:
		*to = time.Unix(int64(n), 5).UTC()
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(n) - 5)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(n))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(0.25)
	case reflect.String:
		v.SetString("a <word> \u00e9")
	case reflect.Pointer:
		if n > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), n-1)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(v.Index(i), n-1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(value, n)
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				fill(f, n)
			}
		}
	}
}

// TestMessages checks that every message has the JSON of package json.
func TestMessages(t *testing.T) {
	a, b, err := ipc.Pair()
	if err != nil {
		t.Fatal(err)
	}
	from, to := ipc.NewConn(a), ipc.NewConn(b)
	defer from.Close()
	defer to.Close()
	for _, v := range []any{
		api.Attached{}, api.Introduction{}, api.Hello{}, api.Slot{}, api.ReserveRequest{}, api.Created{}, api.Target{}, api.Opened{}, api.Ended{}, api.LayerRequest{},
		api.Answer{}, api.Restart{}, api.ForkRequest{}, api.ExecRequest{}, api.ExecReply{}, api.ExecEnded{}, api.ExecTarget{}, api.RunRequest{}, api.RunReply{},
		runner.Spec{}, runner.Info{}, []runner.Probe{}, runner.Question{}, runner.Result{}, runner.Receipt{},
		pid1api.Setup{}, pid1api.Facts{}, pid1api.Exec{}, pid1api.Executed{}, pid1api.Signal{}, pid1api.Exited{},
	} {
		for n := range 5 {
			value := reflect.New(reflect.TypeOf(v))
			fill(value.Elem(), n)
			for _, body := range []any{value.Interface(), value.Elem().Interface()} {
				want, err := json.Marshal(body)
				if err != nil {
					t.Fatal(err)
				}
				if err := from.Send(ipc.Message{Op: "op"}, body, nil); err != nil {
					t.Fatal(err)
				}
				m, err := to.Recv()
				if err != nil {
					t.Fatal(err)
				}
				one, other := reflect.New(reflect.TypeOf(v)), reflect.New(reflect.TypeOf(v))
				err1, err2 := json.Unmarshal(want, one.Interface()), m.Decode(other.Interface())
				if string(m.Body) != string(want) || err1 != nil || err2 != nil || !reflect.DeepEqual(one.Interface(), other.Interface()) {
					t.Errorf("%T: %v, %v\n%s, want\n%s", v, err1, err2, m.Body, want)
				}
			}
		}
	}
}
