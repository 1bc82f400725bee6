// Reads a history of registers, and prints whether it is linearizable: Porcupine decides. tests/linearizable/history.py
// has the format of the file, ./run linearizable builds and runs this program.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Exit codes; 2 is a history that cannot be read, or a wrong option.
const (
	exitOk      = 0
	exitIllegal = 1
	exitBad     = 2
	exitUnknown = 3
)

const never = int64(math.MaxInt64)

// A line of the file.
type line struct {
	Client    int64           `json:"client"`
	Key       *string         `json:"key"`
	Op        string          `json:"op"`
	Arguments []int64         `json:"arguments"`
	Result    json.RawMessage `json:"result"`
	Call      *int64          `json:"call"`
	Return    *int64          `json:"return"`
}

// What the model knows of an operation: a result that nobody was given may be any.
type operation struct {
	op        string
	arguments []int64
	isKnown   bool
	result    int64
	// Where several ask for the same and have no outcome: which of such groups this is in, from 1 on, and its place there.
	group, place int
}

// The value of a register, and how many of each group of operations without an outcome were done, as 2 bytes each.
type state struct {
	value int64
	done  string
}

var argumentCounts = map[string]int{"read": 0, "write": 1, "add": 1, "cas": 2}

// The registers of a history: for each key its operations.
type history struct {
	keys     map[string][]porcupine.Operation
	total    int
	unknowns int
}

func parse(text []byte) (string, porcupine.Operation, error) {
	var read line
	var none porcupine.Operation
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&read); err != nil {
		return "", none, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return "", none, fmt.Errorf("more than one object in the line")
	}
	if read.Key == nil || read.Call == nil {
		return "", none, fmt.Errorf("key and call must be given")
	}
	count, isOp := argumentCounts[read.Op]
	if !isOp {
		return "", none, fmt.Errorf("op %q: must be read, write, cas or add", read.Op)
	}
	if len(read.Arguments) != count {
		return "", none, fmt.Errorf("%s has %d arguments: must be %d", read.Op, len(read.Arguments), count)
	}
	made := &operation{op: read.Op, arguments: read.Arguments}
	if text := string(read.Result); text != "" && text != "null" {
		made.isKnown = true
		var isSwapped bool
		var err error
		switch read.Op {
		case "cas":
			err = json.Unmarshal(read.Result, &isSwapped)
			if isSwapped {
				made.result = 1
			}
		case "write":
			err = fmt.Errorf("a write has no result")
		default:
			err = json.Unmarshal(read.Result, &made.result)
		}
		if err != nil {
			return "", none, fmt.Errorf("result %s: %v", text, err)
		}
	}
	end := never
	if read.Return != nil {
		end = *read.Return
	} else if made.isKnown {
		return "", none, fmt.Errorf("a result without a return")
	}
	if end < *read.Call {
		return "", none, fmt.Errorf("it returns at %d, before its call at %d", end, *read.Call)
	}
	return *read.Key, porcupine.Operation{ClientId: int(read.Client), Input: made, Call: *read.Call, Return: end}, nil
}

func load(input io.Reader) (history, error) {
	found := history{keys: map[string][]porcupine.Operation{}}
	lines := bufio.NewScanner(input)
	lines.Buffer(make([]byte, 1<<16), 1<<24)
	for number := 1; lines.Scan(); number++ {
		text := lines.Bytes()
		if strings.TrimSpace(string(text)) == "" {
			continue
		}
		key, made, err := parse(text)
		if err != nil {
			return found, fmt.Errorf("line %d: %v", number, err)
		}
		found.total++
		if made.Return == never {
			found.unknowns++
		}
		// What nobody was given of a read says nothing.
		if read := made.Input.(*operation); read.op != "read" || read.isKnown {
			found.keys[key] = append(found.keys[key], made)
		}
	}
	return found, lines.Err()
}

// A register holds 0 at first. Sums wrap, as Java's do.
var model = porcupine.Model{
	Init: func() interface{} { return state{} },
	Step: func(before, input, _ interface{}) (bool, interface{}) {
		value, done := before.(state).value, input.(*operation)
		isNext, counts := next(before.(state).done, done)
		if !isNext {
			return false, before
		}
		result := int64(0)
		switch done.op {
		case "read":
			result = value
		case "write":
			value = done.arguments[0]
		case "add":
			value += done.arguments[0]
			result = value
		case "cas":
			if value == done.arguments[0] {
				value, result = done.arguments[1], 1
			}
		}
		return !done.isKnown || result == done.result, state{value, counts}
	},
	Hash: func(of interface{}) uint64 { return uint64(of.(state).value) * 0x9E3779B97F4A7C15 },
}

// Whether it is the turn of an operation in its group, and the counts once it is done. Those of a group do the same and
// may all be done until the end, so the one that was called first can take the place of any other: without this order
// a checker tries all subsets.
func next(counts string, done *operation) (bool, string) {
	if done.group == 0 {
		return true, counts
	}
	at := 2 * (done.group - 1)
	read := []byte(counts)
	for len(read) < at+2 {
		read = append(read, 0)
	}
	if int(read[at])<<8|int(read[at+1]) != done.place {
		return false, counts
	}
	read[at], read[at+1] = byte((done.place+1)>>8), byte(done.place+1)
	return true, string(read)
}

// Puts the operations of one key that have no outcome into groups.
func group(operations []porcupine.Operation) {
	alike := map[string][]*operation{}
	sort.SliceStable(operations, func(i, j int) bool { return operations[i].Call < operations[j].Call })
	for _, each := range operations {
		if done := each.Input.(*operation); each.Return == never {
			done.group, done.place = 0, 0
			alike[describe(done)] = append(alike[describe(done)], done)
		}
	}
	groups := 0
	for _, found := range alike {
		if len(found) < 2 || len(found) > 1<<16-1 {
			continue
		}
		groups++
		for place, done := range found {
			done.group, done.place = groups, place
		}
	}
}

func check(operations []porcupine.Operation, deadline time.Time) porcupine.CheckResult {
	left := time.Until(deadline)
	if left <= 0 {
		return porcupine.Unknown // 0 would be no limit
	}
	group(operations)
	return porcupine.CheckOperationsTimeout(model, operations, left)
}

// Checks all keys, some at a time, and returns their results in the order of the keys.
func checkAll(found history, names []string, deadline time.Time) []porcupine.CheckResult {
	results := make([]porcupine.CheckResult, len(names))
	indexes := make(chan int)
	var workers sync.WaitGroup
	for worker := 0; worker < runtime.GOMAXPROCS(0); worker++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for index := range indexes {
				results[index] = check(found.keys[names[index]], deadline)
			}
		}()
	}
	for index := range names {
		indexes <- index
	}
	close(indexes)
	workers.Wait()
	return results
}

// What had happened when an operation returned: later ones had not begun, and what still ran has no outcome.
func until(operations []porcupine.Operation, end int64) []porcupine.Operation {
	var part []porcupine.Operation
	for _, each := range operations {
		if each.Call > end {
			continue
		}
		if each.Return > end {
			done := each.Input.(*operation)
			if done.op == "read" {
				continue
			}
			each.Input, each.Return = &operation{op: done.op, arguments: done.arguments}, never
		}
		part = append(part, each)
	}
	return part
}

// The shortest beginning of an illegal history that is illegal: each beginning of a legal one is legal.
func shortest(operations []porcupine.Operation, deadline time.Time) []porcupine.Operation {
	var ends []int64
	for _, each := range operations {
		if each.Return != never {
			ends = append(ends, each.Return)
		}
	}
	sort.Slice(ends, func(i, j int) bool { return ends[i] < ends[j] })
	first := sort.Search(len(ends)-1, func(index int) bool {
		return check(until(operations, ends[index]), deadline) != porcupine.Ok
	})
	part := until(operations, ends[first])
	if check(part, deadline) != porcupine.Illegal { // there was no time to find it
		return operations
	}
	return part
}

func describe(done *operation) string {
	words := []string{done.op}
	for _, each := range done.arguments {
		words = append(words, fmt.Sprint(each))
	}
	if done.isKnown && done.op == "cas" {
		words = append(words, "->", fmt.Sprint(done.result == 1))
	} else if done.isKnown {
		words = append(words, "->", fmt.Sprint(done.result))
	}
	return strings.Join(words, " ")
}

func show(operations []porcupine.Operation, most int) {
	sort.SliceStable(operations, func(i, j int) bool { return operations[i].Call < operations[j].Call })
	begin, last := operations[0].Call, int64(math.MinInt64)
	for _, each := range operations {
		if each.Return != never && each.Return > last {
			last = each.Return
		}
	}
	fmt.Printf("%16s  %16s  %8s  operation\n", "call ms", "return ms", "client")
	if skipped := len(operations) - most; skipped > 0 {
		fmt.Printf("%16s  %d earlier ones, which --lines %d shows\n", "...", skipped, len(operations))
		operations = operations[skipped:]
	}
	for _, each := range operations {
		end, note := "unknown", ""
		if each.Return != never {
			end = fmt.Sprintf("%.6f", float64(each.Return-begin)/1e6)
		}
		if each.Return == last {
			note = "   <- has no place"
		}
		call := fmt.Sprintf("%.6f", float64(each.Call-begin)/1e6)
		fmt.Printf("%16s  %16s  %8d  %s%s\n", call, end, each.ClientId, describe(each.Input.(*operation)), note)
	}
}

func run(input io.Reader, limit time.Duration, most int) int {
	begin := time.Now()
	found, err := load(input)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitBad
	}
	var names []string
	for name := range found.keys {
		names = append(names, name)
	}
	sort.Strings(names)
	results := checkAll(found, names, begin.Add(limit))
	smallest, illegals, unknowns := "", 0, 0
	for index, name := range names {
		switch results[index] {
		case porcupine.Illegal:
			if illegals == 0 || len(found.keys[name]) < len(found.keys[smallest]) {
				smallest = name
			}
			illegals++
		case porcupine.Unknown:
			unknowns++
		}
	}
	what := fmt.Sprintf("%d operations on %d keys, %d without an outcome, checked in %.1f s",
		found.total, len(names), found.unknowns, time.Since(begin).Seconds())
	if illegals > 0 {
		fmt.Printf("illegal: %d keys of %s\n", illegals, what)
		part := shortest(found.keys[smallest], time.Now().Add(limit))
		fmt.Printf("key %q is the smallest: no order explains these %d of its %d operations\n",
			smallest, len(part), len(found.keys[smallest]))
		show(part, most)
		return exitIllegal
	}
	if unknowns > 0 {
		fmt.Printf("unknown: no verdict on %d keys within %g s, %s\n", unknowns, limit.Seconds(), what)
		return exitUnknown
	}
	fmt.Printf("ok: %s\n", what)
	return exitOk
}

func main() {
	limit := flag.Float64("seconds", 60, "limit in `seconds`; then the result is unknown")
	most := flag.Int("lines", 40, "most operations to show of an illegal history")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: checker [--seconds N] [--lines N] FILE; reads standard input for -")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 || *limit <= 0 || *most < 1 {
		flag.Usage()
		os.Exit(exitBad)
	}
	input := os.Stdin
	if name := flag.Arg(0); name != "-" {
		opened, err := os.Open(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitBad)
		}
		input = opened
	}
	os.Exit(run(input, time.Duration(*limit*float64(time.Second)), *most))
}
