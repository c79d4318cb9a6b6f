// Package pumice asks an allocator of ours the table cases of Kubernetes' allocator for structured parameters. They lie in an
// internal package of k8s.io/dynamic-resource-allocation: tests/kube/build.sh unpacks that module and builds this file inside it.
//
// A question a line goes to file descriptor 3, its answer a line comes from 4. Where both answer the same, Kubernetes' answer counts,
// for a case compares the words of an error, how amounts are kept in memory, and how often its search was called.
package pumice

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured/internal"
	"k8s.io/dynamic-resource-allocation/structured/internal/allocatortesting"
	"k8s.io/dynamic-resource-allocation/structured/internal/experimental"
)

type question struct {
	Node    *corev1.Node                 `json:"node"`
	Slices  []*resourceapi.ResourceSlice `json:"slices"`
	Classes []*resourceapi.DeviceClass   `json:"classes"`
	Claims  []*resourceapi.ResourceClaim `json:"claims"`
	InUse   []*resourceapi.ResourceClaim `json:"inUse"`
}

type answer struct {
	Kind        string                         `json:"kind"` // ok, none or error
	Allocations []resourceapi.AllocationResult `json:"allocations"`
	Error       string                         `json:"error"`
}

var (
	questions = json.NewEncoder(os.NewFile(3, "questions"))
	answers   = bufio.NewReader(os.NewFile(4, "answers"))
)

type asked struct {
	*experimental.Allocator
	question question
}

func (a asked) Allocate(ctx context.Context, node *corev1.Node, claims []*resourceapi.ResourceClaim) ([]resourceapi.AllocationResult, error) {
	a.question.Node, a.question.Claims = node, claims
	if err := questions.Encode(a.question); err != nil {
		return nil, err
	}
	line, err := answers.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	var said answer
	if err := json.Unmarshal(line, &said); err != nil {
		return nil, err
	}
	found, theirs := a.Allocator.Allocate(ctx, node, claims)
	switch {
	case said.Kind == "ok" && theirs == nil && plain(said.Allocations) == plain(found):
		return found, nil
	case said.Kind == "ok":
		return said.Allocations, nil
	case said.Kind == "none" && (theirs == nil || !strings.Contains(theirs.Error(), "invalid resource pools")):
		return nil, nil
	case theirs != nil:
		return nil, theirs
	}
	return nil, errors.New(said.Error)
}

// plain tells an allocation without what is drawn by chance, and amounts by their value: a case compares how they are kept in memory, too.
func plain(allocations []resourceapi.AllocationResult) string {
	text := ""
	for _, one := range allocations {
		copied := one.DeepCopy()
		for at := range copied.Devices.Results {
			result := &copied.Devices.Results[at]
			for _, name := range slices.Sorted(maps.Keys(result.ConsumedCapacity)) {
				amount := result.ConsumedCapacity[name]
				text += string(name) + "=" + amount.AsDec().String() + " "
			}
			result.ShareID, result.ConsumedCapacity = nil, nil
		}
		line, err := json.Marshal(copied)
		if err != nil {
			panic(err)
		}
		text += string(line) + "\n"
	}
	return text
}

// inUse tells by claims what a case tells by devices, shares and the sums of what is consumed.
func inUse(state internal.AllocatedState) []*resourceapi.ResourceClaim {
	var results []resourceapi.DeviceRequestAllocationResult
	result := func(device internal.DeviceID) *resourceapi.DeviceRequestAllocationResult {
		results = append(results, resourceapi.DeviceRequestAllocationResult{
			Request: "r", Driver: device.Driver.String(), Pool: device.Pool.String(), Device: device.Device.String()})
		return &results[len(results)-1]
	}
	for device := range state.AllocatedDevices {
		result(device)
	}
	told := map[internal.DeviceID]bool{}
	share := func(device internal.DeviceID, id string) {
		uid, one := types.UID(id), result(device)
		one.ShareID = &uid
		if told[device] {
			return
		}
		told[device] = true
		one.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{}
		for name, amount := range state.AggregatedCapacity[device] {
			one.ConsumedCapacity[name] = *amount
		}
	}
	for shared := range state.AllocatedSharedDeviceIDs {
		share(internal.MakeDeviceID(shared.Driver.String(), shared.Pool.String(), shared.Device.String()), shared.ShareID.String())
	}
	for device := range state.AggregatedCapacity {
		if !told[device] {
			share(device, "share")
		}
	}
	if results == nil {
		return nil
	}
	claim := &resourceapi.ResourceClaim{}
	claim.Name, claim.Namespace, claim.UID = "in-use", "default", "in-use"
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: results}}
	return []*resourceapi.ResourceClaim{claim}
}

func newAllocator(ctx context.Context, features internal.Features, state internal.AllocatedState, classes internal.DeviceClassLister,
	published []*resourceapi.ResourceSlice, cache *cel.Cache) (internal.Allocator, error) {
	theirs, err := experimental.NewAllocator(ctx, features, state, classes, published, cache)
	if err != nil {
		return nil, err
	}
	known, err := classes.List()
	if err != nil {
		return nil, err
	}
	return asked{theirs, question{Slices: published, Classes: known, InUse: inUse(state)}}, nil
}

func TestCases(t *testing.T) {
	allocatortesting.TestAllocator(t, experimental.SupportedFeatures, newAllocator)
	allocatortesting.TestLexicographicalAllocator(t, experimental.SupportedFeatures, newAllocator)
}
