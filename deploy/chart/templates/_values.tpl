{{- /* What the values say of a workload, in one form for all: by Volcano's names for the three of its chart, by HAMi's for nodes. */ -}}
{{- define "pumice.says" -}}
{{- $name := .object.metadata.name }}
{{- if eq $name "volcano-scheduler" }}{{ include "pumice.central" (dict "root" .root "prefix" "scheduler") }}
{{- else if eq $name "volcano-controllers" }}{{ include "pumice.central" (dict "root" .root "prefix" "controller") }}
{{- else if eq $name "volcano-admission" }}{{ include "pumice.central" (dict "root" .root "prefix" "admission") }}
{{- else if eq $name "volcano-vgpu-monitor" }}{{ include "pumice.monitor" .root }}
{{- else if hasPrefix "volcano-device-plugin" $name }}{{ include "pumice.cards" .root }}
{{- else if contains "ascend" $name }}{{ include "pumice.chips" .root }}
{{- else if eq $name "pumice-dra-driver-npu" }}{{ include "pumice.claimsOfNpus" .root }}
{{- else if eq $name "pumice-dra-driver" }}{{ include "pumice.claims" .root }}
{{- else if eq $name "pumice-web" }}{{ include "pumice.page" .root }}
{{- else }}{{ fail (printf "no values speak of %s" $name) }}
{{- end }}
{{- end }}

{{- define "pumice.central" -}}
{{- $custom := .root.Values.custom }}{{ $p := .prefix }}{{ $args := list }}{{ $journal := dict }}
{{- with $custom.scheduler_name }}{{ $args = append $args (printf "--scheduler-name=%s" .) }}{{ end }}
{{- if eq $p "scheduler" }}
{{- with $custom.scheduler_schedule_period }}{{ $args = append $args (printf "--schedule-period=%s" .) }}{{ end }}
{{- with $custom.scheduler_journal_mib }}
{{- if and $custom.scheduler_journal_volume (gt (len $custom.scheduler_shards) 1) }}
{{- fail "custom.scheduler_journal_volume with several custom.scheduler_shards: one scheduler at a time writes a journal; leave the volume out, and each has its own" }}
{{- end }}
{{- if and $custom.scheduler_journal_volume (gt (int $custom.scheduler_replicas) 1) }}
{{- fail "custom.scheduler_journal_volume with custom.scheduler_replicas above 1: one scheduler at a time writes a journal; leave the volume out, and each has its own" }}
{{- end }}
{{- $args = concat $args (list "--journal-dir=/var/lib/pumice/journal" (printf "--journal-size=%dMiB" (int .))) }}
{{- $journal = default (dict "emptyDir" (dict "sizeLimit" (printf "%dMi" (add (int .) 64)))) $custom.scheduler_journal_volume }}
{{- end }}
{{- else if eq $p "controller" }}
{{- with $custom.controller_worker_threads }}{{ $args = append $args (printf "--worker-threads=%d" (int .)) }}{{ end }}
{{- if .root.Values.draDriver.shareClaims }}{{ $args = append $args "--share-claims" }}{{ end }}
{{- else }}
{{- with $custom.enabled_admissions }}{{ $args = append $args (printf "--enabled-admission=%s" .) }}{{ end }}
{{- if .root.Values.draDriver.shareClaims }}{{ $args = append $args "--share-claims" }}{{ end }}
{{- end }}
{{- toYaml (dict
  "replicas" (index $custom (printf "%s_replicas" $p))
  "args" (concat $args (index $custom (printf "%s_extraArgs" $p)))
  "journal" $journal
  "notArg" ($custom.leader_elect_enable | ternary "" "--leader-elect")
  "resources" (index $custom (printf "%s_resources" $p))
  "affinity" (default $custom.default_affinity (index $custom (printf "%s_affinity" $p)))
  "tolerations" (default $custom.default_tolerations (index $custom (printf "%s_tolerations" $p)))
  "nodeSelector" (default $custom.default_ns (index $custom (printf "%s_ns" $p)))
  "labels" (index $custom (printf "%s_labels" $p))
  "podLabels" (index $custom (printf "%s_podLabels" $p))
  "securityContext" (default $custom.default_sc (index $custom (printf "%s_sc" $p)))
  "containerSecurityContext" (default $custom.default_csc (index $custom (printf "%s_main_csc" $p)))
  "priorityClassName" $custom.default_priorityClassName) }}
{{- end }}

{{- define "pumice.cards" -}}
{{- with .Values.devicePlugin }}
{{- $args := list }}
{{- with .deviceListStrategy }}{{ range splitList "," . }}{{ $args = append $args (printf "--device-list-strategy=%s" .) }}{{ end }}{{ end }}
{{- with .migStrategy }}{{ $args = append $args (printf "--mig-strategy=%s" .) }}{{ end }}
{{- range $value, $flag := dict
  "passDeviceSpecsEnabled" "pass-device-specs" "gdrcopyEnabled" "gdrcopy-enabled" "gdsEnabled" "gds-enabled" "mofedEnabled" "mofed-enabled"
  "allowDisableControl" "allow-disable-control" }}
{{- $said := index $.Values.devicePlugin $value }}
{{- if kindIs "bool" $said }}{{ $args = append $args (printf "--%s%s" (ternary "" "no-" $said) $flag) }}{{ end }}
{{- end }}
{{- toYaml (dict
  "args" (concat $args .extraArgs) "env" .extraEnvs "resources" .resources "nodeSelector" .nvidiaNodeSelector "tolerations" .tolerations
  "podAnnotations" .podAnnotations "updateStrategy" .updateStrategy "priorityClassName" .priorityClassName
  "containerSecurityContext" .securityContext "runtimeClassName" .runtimeClassName
  "nodeConfig" .nodeConfiguration.externalConfigName) }}
{{- end }}
{{- end }}

{{- define "pumice.monitor" -}}
{{- with .Values.devicePlugin }}
{{- toYaml (dict
  "args" .monitor.extraArgs "resources" .monitor.resources "nodeSelector" .nvidiaNodeSelector "tolerations" .tolerations
  "updateStrategy" .updateStrategy "priorityClassName" .priorityClassName "runtimeClassName" .runtimeClassName) }}
{{- end }}
{{- end }}

{{- define "pumice.claims" -}}
{{- with .Values.draDriver }}
{{- $args := list }}
{{- with .worlds }}{{ $args = append $args (printf "--worlds=%s" .) }}{{ end }}
{{- $env := merge (dict) .extraEnvs }}{{ $rights := dict }}
{{- if .cutMig }}
{{- $_ := set $env "NVIDIA_MIG_CONFIG_DEVICES" "all" }}
{{- $rights = dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "runAsUser" 0
  "seccompProfile" (dict "type" "RuntimeDefault") "capabilities" (dict "drop" (list "ALL") "add" (list "SYS_ADMIN")) }}
{{- end }}
{{- toYaml (dict
  "args" (concat $args .extraArgs) "env" $env "containerSecurityContext" $rights "resources" .resources "nodeSelector" .nodeSelector "tolerations" .tolerations
  "updateStrategy" .updateStrategy "priorityClassName" .priorityClassName "runtimeClassName" .runtimeClassName) }}
{{- end }}
{{- end }}

{{- define "pumice.claimsOfNpus" -}}
{{- with .Values.draDriver }}
{{- toYaml (dict
  "resources" .resources "nodeSelector" .nodeSelector "tolerations" .tolerations
  "updateStrategy" .updateStrategy "priorityClassName" .priorityClassName) }}
{{- end }}
{{- end }}

{{- define "pumice.page" -}}
{{- with .Values.web }}
{{- toYaml (dict
  "args" .extraArgs "resources" .resources "nodeSelector" .nodeSelector "tolerations" .tolerations
  "priorityClassName" .priorityClassName) }}
{{- end }}
{{- end }}

{{- define "pumice.chips" -}}
{{- with .Values.devices.ascend }}
{{- toYaml (dict
  "args" .extraArgs "resources" .resources "nodeSelector" .nodeSelector "tolerations" .tolerations "runtimeClassName" .runtimeClassName) }}
{{- end }}
{{- end }}

{{- /* Configuration that values write. */ -}}
{{- define "pumice.configuration" -}}
{{- $name := .object.metadata.name }}{{ $custom := .root.Values.custom }}{{ $cards := .root.Values.devicePlugin }}
{{- if eq $name "volcano-scheduler-configmap" }}
{{- with $custom.scheduler_config_override }}{{ $_ := set $.object.data "volcano-scheduler.conf" . }}{{ end }}
{{- else if eq $name "volcano-vgpu-node-config" }}
{{- with $cards.nodeConfiguration.config }}{{ $_ := set $.object.data "config.json" . }}{{ end }}
{{- else if eq $name "volcano-vgpu-device-config" }}
{{- with index .root.Values "device-config" "content" }}{{ $_ := set $.object.data "device-config.yaml" . }}{{ end }}
{{- $changed := dict }}
{{- range $key := list "deviceSplitCount" "deviceMemoryScaling" "deviceCoreScaling" }}
{{- if not (kindIs "invalid" (index $cards $key)) }}{{ $_ := set $changed $key (index $cards $key) }}{{ end }}
{{- end }}
{{- if $changed }}
{{- $config := get .object.data "device-config.yaml" | fromYaml }}
{{- $_ := set $config "nvidia" (merge (dict) $changed (default dict $config.nvidia)) }}
{{- $_ := set .object.data "device-config.yaml" (toYaml $config) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The lease has the name of the pods' scheduler, and of its shard behind it. */ -}}
{{- define "pumice.lease" -}}
{{- $custom := .root.Values.custom }}
{{- if and (or $custom.scheduler_name $custom.scheduler_shards) (eq .object.metadata.name "volcano-scheduler") }}
{{- $name := default "volcano" $custom.scheduler_name }}{{ $leases := list }}
{{- range $shard := $custom.scheduler_shards }}
{{- $leases = append $leases (eq $shard $name | ternary $name (printf "%s-%s" $name $shard)) }}
{{- end }}
{{- range $rule := .object.rules }}
{{- if and (has "leases" $rule.resources) $rule.resourceNames }}{{ $_ := set $rule "resourceNames" (default (list $name) $leases) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The scheduler of one shard: the same Deployment under another name, with its pods apart. */ -}}
{{- define "pumice.shard" -}}
{{- $object := deepCopy .object }}{{ $spec := $object.spec }}{{ $own := dict "shard" .shard }}
{{- $_ := set $object.metadata "name" (printf "%s-%s" $object.metadata.name .shard) }}
{{- $_ := set $spec.selector "matchLabels" (merge (dict) $own $spec.selector.matchLabels) }}
{{- $_ := set $spec.template.metadata "labels" (merge (dict) $own $spec.template.metadata.labels) }}
{{- $container := first $spec.template.spec.containers }}
{{- $peers := join "," .root.Values.custom.scheduler_shards }}
{{- $_ := set $container "args" (concat $container.args (list "--scheduler-sharding-mode=hard" (printf "--scheduler-sharding-name=%s" .shard) (printf "--scheduler-sharding-peers=%s" $peers))) }}
{{- toYaml $object }}
{{- end }}
