// Command allocator answers by Kubernetes' own allocator for structured parameters (k8s.io/dynamic-resource-allocation/structured):
// a case of JSON a line on standard input, its answer a line on standard output. tests/kube/build.sh builds it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

type question struct {
	Node    corev1.Node                  `json:"node"`
	Slices  []*resourceapi.ResourceSlice `json:"slices"`
	Classes classes                      `json:"classes"`
	Claims  []*resourceapi.ResourceClaim `json:"claims"`
	InUse   []*resourceapi.ResourceClaim `json:"inUse"`
}

type answer struct {
	Allocations []resourceapi.AllocationResult `json:"allocations"`
	Error       string                         `json:"error,omitempty"`
	// Seconds of processor time of the answer, what it took to read the question apart.
	Seconds float64 `json:"seconds"`
}

type classes []*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return c, nil }

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("class %s not found", name)
}

// The gates that Kubernetes 1.36 has on by default.
var features = structured.Features{
	AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true,
	PartitionableDevices: true, PrioritizedList: true,
}

// state is what kube-scheduler gathers from allocated claims (dynamicresources, allocateddevices.go).
func state(claims []*resourceapi.ResourceClaim) structured.AllocatedState {
	found := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, claim := range claims {
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.AdminAccess != nil && *result.AdminAccess {
				continue
			}
			device := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
			if result.ShareID == nil {
				found.AllocatedDevices.Insert(device)
				continue
			}
			share := types.UID(*result.ShareID)
			found.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(device, &share))
			consumed := map[resourceapi.QualifiedName]resource.Quantity{}
			for name, amount := range result.ConsumedCapacity {
				consumed[name] = amount
			}
			if len(consumed) > 0 {
				found.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(device, consumed))
			}
		}
	}
	return found
}

func seconds() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return float64(used.Utime.Sec+used.Stime.Sec) + float64(used.Utime.Usec+used.Stime.Usec)/1e6
}

func ask(line []byte, cache *cel.Cache) (said answer) {
	defer func() {
		if problem := recover(); problem != nil {
			said = answer{Error: fmt.Sprint("panic: ", problem)}
		}
	}()
	var q question
	if err := json.Unmarshal(line, &q); err != nil {
		return answer{Error: "unreadable: " + err.Error()}
	}
	before := seconds()
	defer func() { said.Seconds = seconds() - before }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	allocator, err := structured.NewAllocator(ctx, features, state(q.InUse), q.Classes, q.Slices, cache)
	if err != nil {
		return answer{Error: err.Error()}
	}
	allocations, err := allocator.Allocate(ctx, &q.Node, q.Claims)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Allocations: allocations}
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	out := json.NewEncoder(os.Stdout)
	cache := cel.NewCache(1000, cel.Features{EnableConsumableCapacity: true})
	for in.Scan() {
		if err := out.Encode(ask(in.Bytes(), cache)); err != nil {
			panic(err)
		}
	}
}
