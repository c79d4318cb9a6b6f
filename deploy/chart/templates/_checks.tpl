{{- /* What would be refused only later, or never told. */ -}}
{{- define "pumice.checks" -}}
{{- $custom := .Values.custom }}
{{- if and .Values.devices.ascend.enabled .Values.devices.ascend.mindcluster }}
{{- fail "devices.ascend.enabled and devices.ascend.mindcluster: a scheduler serves NPUs in one of these ways, not in both" }}
{{- end }}
{{- if ne .Values.devicePlugin.sharing "vgpu" }}{{ include "pumice.onlyOfShares" .Values.devicePlugin }}{{ end }}
{{- range $component := list "scheduler" "controller" }}
{{- if and (gt (int (index $custom (printf "%s_replicas" $component))) 1) (not $custom.leader_elect_enable) }}
{{- fail (printf "custom.%s_replicas of two or more want custom.leader_elect_enable: each would do the other's work" $component) }}
{{- end }}
{{- end }}
{{- if or .Values.draDriver.enabled .Values.draDriver.npus }}
{{- $served := semverCompare ">=1.34.0-0" .Capabilities.KubeVersion.Version }}
{{- if lookup "v1" "Namespace" "" "kube-system" }}{{ $served = .Capabilities.APIVersions.Has "resource.k8s.io/v1" }}{{ end }}
{{- if not $served }}
{{- fail "draDriver.enabled: this API server does not serve resource.k8s.io/v1, which Kubernetes has from 1.34 on" }}
{{- end }}
{{- end }}
{{- if and .Values.draDriver.shareClaims (not (and .Values.draDriver.enabled $custom.controller_enable $custom.admission_enable)) }}
{{- fail "draDriver.shareClaims wants draDriver.enabled, custom.controller_enable and custom.admission_enable: the admission server writes claims, the controller makes their templates, and the driver gives their cards" }}
{{- end }}
{{- include "pumice.checksOfTexts" . }}
{{- include "pumice.checksOfTheCluster" . }}
{{- end }}

{{- /* Configuration that its daemon would refuse: it would go on by what it had, and say so in its log. */ -}}
{{- define "pumice.checksOfTexts" -}}
{{- with .Values.custom.scheduler_config_override }}
{{- $conf := fromYaml . }}
{{- if $conf.Error }}{{ fail (printf "custom.scheduler_config_override is no YAML with the keys actions and tiers: %s" $conf.Error) }}{{ end }}
{{- $actions := include "pumice.actions" $ | fromYamlArray }}
{{- if not $actions }}{{ fail "custom.scheduler_config_override names no actions in one text; write for example actions: \"enqueue, allocate, backfill\"" }}{{ end }}
{{- $known := list "enqueue" "allocate" "backfill" "preempt" "reclaim" "shuffle" "gangpreempt" "gangreclaim" "defrag" }}
{{- range $actions }}
{{- if not (has . $known) }}{{ fail (printf "custom.scheduler_config_override has the unknown action %q; known are %s" . (join ", " $known)) }}{{ end }}
{{- end }}
{{- range (kindIs "slice" $conf.tiers | ternary $conf.tiers list) }}
{{- if kindIs "map" . }}{{ include "pumice.checksOfTier" .plugins }}{{ end }}
{{- end }}
{{- end }}
{{- with .Values.custom.controller_config_override }}{{ with (fromYaml .).Error }}
{{- fail (printf "custom.controller_config_override is no YAML of keys: %s" .) }}
{{- end }}{{ end }}
{{- with index .Values "device-config" "content" }}{{ with (fromYaml .).Error }}
{{- fail (printf "device-config.content is no YAML of sections: %s" .) }}
{{- end }}{{ end }}
{{- with .Values.devicePlugin.nodeConfiguration.config }}{{ with (fromJson .).Error }}
{{- fail (printf "devicePlugin.nodeConfiguration.config is no JSON of keys: %s" .) }}
{{- end }}{{ end }}
{{- end }}

{{- /* The actions of the scheduler's configuration, where one is given, as a list. */ -}}
{{- define "pumice.actions" -}}
{{- $actions := list }}
{{- with .Values.custom.scheduler_config_override }}
{{- $said := (fromYaml .).actions }}
{{- if kindIs "string" $said }}
{{- range splitList "," $said }}{{ with trim . }}{{ $actions = append $actions . }}{{ end }}{{ end }}
{{- end }}
{{- end }}
{{- toYaml $actions }}
{{- end }}

{{- define "pumice.checksOfTier" -}}
{{- $names := list }}{{ $tree := false }}
{{- range (kindIs "slice" . | ternary . list) }}
{{- if kindIs "map" . }}
{{- $names = append $names .name }}
{{- $said := toString (default (get . "enableHierarchy") (get . "enabledHierarchy")) }}
{{- if and (eq (toString .name) "drf") (or (hasKey . "enableHierarchy") (hasKey . "enabledHierarchy")) (not (has $said (list "0" "f" "F" "FALSE" "false" "False"))) }}
{{- $tree = true }}
{{- end }}
{{- else }}{{ $names = append $names . }}
{{- end }}
{{- end }}
{{- if and $tree (has "proportion" $names) }}
{{- fail "custom.scheduler_config_override: drf with enableHierarchy and proportion exclude each other in one tier" }}
{{- end }}
{{- end }}

{{- /* What only the cluster itself tells; offline nothing is there. */ -}}
{{- define "pumice.checksOfTheCluster" -}}
{{- $name := default "volcano" .Values.custom.scheduler_name }}
{{- if .Values.custom.scheduler_enable }}
{{- range $other := (lookup "apps/v1" "Deployment" "" "").items }}
{{- $meta := $other.metadata }}{{ $ours := and (eq $meta.namespace "volcano-system") (eq $meta.name "volcano-scheduler") }}
{{- if and (not $ours) (ne (int (dig "spec" "replicas" 1 $other)) 0) (has $name (include "pumice.schedules" $other | fromYamlArray)) }}
{{- fail (printf "the deployment %s in %s schedules the pods of schedulerName %s already, and two schedulers would give out the same cards: scale it to 0, or set custom.scheduler_name to another name" $meta.name $meta.namespace $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $path, $text := .Files.Glob "crds/*" }}
{{- $kind := $.Files.Get $path | fromYaml }}{{ $there := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $kind.metadata.name }}
{{- if $there }}
{{- range $version := $kind.spec.versions }}
{{- $served := false }}
{{- range $there.spec.versions }}{{ if and (eq .name $version.name) .served }}{{ $served = true }}{{ end }}{{ end }}
{{- if not $served }}
{{- fail (printf "the CustomResourceDefinition %s is there and does not serve %s: it is older than this chart, and helm leaves it as it is; kubectl apply --server-side --force-conflicts -f deploy/manifests/crds brings it up to date" $kind.metadata.name $version.name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The names under which a Deployment schedules: those that its schedulers are told, their makers' own where they are told none. A controller is
told that name as well, and other people's programs have schedulers, too. */ -}}
{{- define "pumice.schedules" -}}
{{- $found := list }}{{ $account := default "" .spec.template.spec.serviceAccountName }}
{{- range .spec.template.spec.containers }}
{{- $named := list }}{{ $programs := list .image }}{{ $words := concat (default list .command) (default list .args) }}
{{- range $i, $word := $words }}
{{- if hasPrefix "--scheduler-name=" $word }}{{ $named = append $named (trimPrefix "--scheduler-name=" $word) }}
{{- else if and (eq $word "--scheduler-name") (lt (add1 $i) (len $words)) }}{{ $named = append $named (index $words (add1 $i)) }}
{{- else if not (hasPrefix "-" $word) }}{{ $programs = append $programs $word }}
{{- end }}
{{- end }}
{{- $programs = join " " $programs }}
{{- if contains "scheduler" $programs }}
{{- if $named }}
{{- else if or (contains "vc-scheduler" $programs) (contains "pumice" $programs) (hasPrefix "volcano-" $account) }}{{ $named = list "volcano" }}
{{- else if contains "hami" .image }}{{ $named = list "hami-scheduler" }}
{{- end }}
{{- $found = concat $found $named }}
{{- end }}
{{- end }}
{{- toYaml $found }}
{{- end }}

{{- /* Fields that the CustomResourceDefinitions there do not have: the API server would drop them from objects. */ -}}
{{- define "pumice.fieldsMissing" -}}
{{- range $path, $text := .Files.Glob "crds/*" }}
{{- $kind := $.Files.Get $path | fromYaml }}{{ $there := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $kind.metadata.name }}
{{- if $there }}
{{- range $version := $kind.spec.versions }}{{ range $has := $there.spec.versions }}
{{- if eq $version.name $has.name }}
{{- range $field := include "pumice.fields" (list "" $version.schema.openAPIV3Schema $has.schema.openAPIV3Schema) | splitList "\n" }}
{{- with trim $field }}
{{ $kind.spec.names.kind }}{{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "pumice.fields" -}}
{{- $at := index . 0 }}{{ $wanted := index . 1 }}{{ $has := index . 2 }}
{{- if not (or (get $has "x-kubernetes-preserve-unknown-fields") (kindIs "bool" (get $has "additionalProperties"))) }}
{{- range $name, $below := $wanted.properties }}
{{- if and (eq $at "") (has $name (list "apiVersion" "kind" "metadata")) }}
{{- else if hasKey (default dict $has.properties) $name }}
{{ include "pumice.fields" (list (printf "%s.%s" $at $name) $below (get $has.properties $name)) | trim }}
{{- else if not (hasKey $has "additionalProperties") }}
{{ $at }}.{{ $name }}
{{- end }}
{{- end }}
{{- range $key, $mark := dict "items" "[]" "additionalProperties" ".*" }}
{{- $below := get $wanted $key }}{{ $there := get $has $key }}
{{- if and (kindIs "map" $below) (kindIs "map" $there) }}
{{ include "pumice.fields" (list (print $at $mark) $below $there) | trim }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Values that legacy sharing does not know. */ -}}
{{- define "pumice.onlyOfShares" -}}
{{- $said := list }}
{{- range list "deviceSplitCount" "deviceMemoryScaling" "deviceCoreScaling" "deviceListStrategy" "migStrategy" "allowDisableControl" "passDeviceSpecsEnabled" "gdrcopyEnabled" "gdsEnabled" "mofedEnabled" }}
{{- $value := index $ . }}
{{- if not (or (kindIs "invalid" $value) (eq (toString $value) "")) }}{{ $said = append $said (printf "devicePlugin.%s" .) }}{{ end }}
{{- end }}
{{- if .mig.enabled }}{{ $said = append $said "devicePlugin.mig.enabled" }}{{ end }}
{{- if or .nodeConfiguration.config .nodeConfiguration.externalConfigName }}{{ $said = append $said "devicePlugin.nodeConfiguration" }}{{ end }}
{{- if $said }}{{ fail (printf "%s goes with devicePlugin.sharing: vgpu alone" (join ", " $said)) }}{{ end }}
{{- end }}
