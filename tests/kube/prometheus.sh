#!/bin/sh
# Unpack Debian's Prometheus, without installing it, for the tests of rules and dashboards; the last line is where its programs are.
set -eu
folder=${XDG_CACHE_HOME:-$HOME/.cache}/pumice/prometheus
if [ ! -x "$folder/usr/bin/promtool" ]; then
    mkdir -p "$folder"
    cd "$folder"
    apt-get download -qq prometheus || { apt-get update -qq && apt-get download -qq prometheus; }
    dpkg -x prometheus_*.deb .
    rm prometheus_*.deb
fi
echo "$folder/usr/bin"
