#!/usr/bin/env bash
# Builds the real control plane that go.mod names, once per go.sum, and prints the directory as the last line.
# That directory is what KUBEBUILDER_ASSETS (envtest's convention) hands to the tests.
# Names given as arguments are built besides: e2e.test is Kubernetes' own suite, which `make conformance` runs. helm and containerd have
# modules of their own: they want newer neighbours than the control plane's, and a new helm shall not build that anew.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

command -v go >/dev/null || { echo "make kube needs Go 1.26 or later (https://go.dev/doc/install)" >&2; exit 2; }
version=$(awk '$1 == "k8s.io/kubernetes" {print $2; exit}' go.mod)
IFS=. read -r major minor _ <<<"${version#v}"
recipe=2 # raise it when the flags below change what is built
sum=$(cat go.mod go.sum <(echo $recipe) | sha256sum | cut -c1-16)
assets="${PUMICE_KUBE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pumice/kube}/$version-$sum"
mkdir -p "$assets"

# Without a stamp the binaries call themselves v0.0.0-master and kubectl refuses to compare versions.
stamp=k8s.io/component-base/version
flags="-s -w -X $stamp.gitVersion=$version -X $stamp.gitMajor=$major -X $stamp.gitMinor=$minor -X $stamp.gitTreeState=clean"

build() { # build NAME PACKAGE: leaves a whole binary or none
    local name=$1 package=$2
    [ -x "$assets/$name" ] && return
    echo "building $name $version ..." >&2
    export CGO_ENABLED=0 GOFLAGS=-mod=readonly
    local how=(build)
    [ "$name" != e2e.test ] || how=(test -c -vet=off)
    go "${how[@]}" -trimpath -ldflags "$flags" -o "$assets/.$name.$$" "$package"
    mv "$assets/.$name.$$" "$assets/$name"
}

build_helm() {
    local module=helm.sh/helm/v4 version sum
    version=$(awk -v module=$module '$1 == module {print $2; exit}' helm/go.mod)
    sum=$(cat helm/go.mod helm/go.sum | sha256sum | cut -c1-16)
    if [ ! -x "$assets/.helm-$sum" ]; then
        echo "building helm $version ..." >&2
        CGO_ENABLED=0 GOFLAGS=-mod=readonly go -C helm build -trimpath \
            -ldflags "-s -w -X $module/internal/version.version=$version" -o "$assets/.helm.$$" "$module/cmd/helm"
        mv "$assets/.helm.$$" "$assets/.helm-$sum"
    fi
    ln -sfn ".helm-$sum" "$assets/helm"
}

build_containerd() { # the runtime with CDI, beside Debian's without; in a folder of its own, for the names are Debian's, too
    local module=github.com/containerd/containerd/v2 version sum name
    version=$(awk -v module=$module '$1 == module {print $2; exit}' containerd/go.mod)
    sum=$(cat containerd/go.mod containerd/go.sum | sha256sum | cut -c1-16)
    mkdir -p "$assets/.containerd-$sum"
    for name in containerd containerd-shim-runc-v2 ctr; do
        [ -x "$assets/.containerd-$sum/$name" ] && continue
        echo "building $name $version ..." >&2
        CGO_ENABLED=0 GOFLAGS=-mod=readonly go -C containerd build -trimpath \
            -ldflags "-s -w -X $module/version.Version=$version" -o "$assets/.$name.$$" "$module/cmd/$name"
        mv "$assets/.$name.$$" "$assets/.containerd-$sum/$name"
    done
    ln -sfn ".containerd-$sum" "$assets/containerd-2"
}

build_allocator() { # Kubernetes' allocator for structured parameters behind a pipe: what the tests of claims compare with
    local sum
    sum=$(cat allocator/main.go | sha256sum | cut -c1-16)
    build ".allocator-$sum" ./allocator
    ln -sfn ".allocator-$sum" "$assets/allocator"
}

build_cases() { # the table cases of that allocator, which lie in an internal package of its module: unpacked, with ours beside them
    local module=k8s.io/dynamic-resource-allocation sum folder
    sum=$(cat cases/cases_test.go | sha256sum | cut -c1-16)
    if [ ! -x "$assets/.cases-$sum" ]; then
        echo "building the cases of $module ..." >&2
        folder=$(mktemp -d)
        cp -r "$(go mod download -json "$module@$(go list -m -f '{{.Version}}' $module)" | awk -F'"' '$2 == "Dir" {print $4}')" "$folder/module"
        chmod -R u+w "$folder"
        mkdir "$folder/module/structured/internal/pumice"
        cp cases/cases_test.go "$folder/module/structured/internal/pumice/"
        CGO_ENABLED=0 GOFLAGS=-mod=readonly go -C "$folder/module" test -c -vet=off -trimpath -o "$assets/.cases.$$" ./structured/internal/pumice
        mv "$assets/.cases.$$" "$assets/.cases-$sum"
        rm -r "$folder"
    fi
    ln -sfn ".cases-$sum" "$assets/claim-cases"
}

(
    flock 9 # two builds at once would only slow each other down
    build etcd go.etcd.io/etcd/server/v3
    for name in kube-apiserver kubectl kube-controller-manager kube-scheduler kubelet "$@"; do
        case $name in
            e2e.test) build "$name" k8s.io/kubernetes/test/e2e ;;
            *) build "$name" "k8s.io/kubernetes/cmd/$name" ;;
        esac
    done
    build_allocator
    build_cases
    build_helm
    build_containerd
) 9>"$assets/.lock"
echo "$assets"
