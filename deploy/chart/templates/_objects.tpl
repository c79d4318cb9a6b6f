{{- /* The objects are the manifests'. What values say otherwise is written into them here, in place, for templates return text alone. */ -}}

{{- /* The manifests that these values ask for, as a list. */ -}}
{{- define "pumice.manifests" -}}
{{- $custom := .Values.custom }}{{ $cards := .Values.devicePlugin }}{{ $chips := .Values.devices.ascend }}
{{- $files := list }}
{{- if or $custom.scheduler_enable $custom.controller_enable }}{{ $files = append $files "volcano.yml" }}{{ end }}
{{- if $custom.admission_enable }}{{ $files = append $files "volcano-admission.yml" }}{{ end }}
{{- if and $custom.scheduler_enable (has "defrag" (include "pumice.actions" . | fromYamlArray)) }}{{ $files = append $files "volcano-defrag.yml" }}{{ end }}
{{- if and $cards.enabled (eq $cards.sharing "gpushare") }}{{ $files = append $files "volcano-device-plugin.yml" }}
{{- else if or $cards.enabled $cards.monitor.enabled }}{{ $files = append $files "volcano-vgpu-device-plugin.yml" }}{{ end }}
{{- if $cards.mig.enabled }}{{ $files = append $files "volcano-vgpu-device-plugin-mig.yml" }}{{ end }}
{{- if .Values.draDriver.enabled }}{{ $files = append $files "pumice-dra-driver.yml" }}{{ end }}
{{- if .Values.draDriver.npus }}{{ $files = append $files "pumice-dra-driver-npu.yml" }}{{ end }}
{{- if .Values.draDriver.shareClaims }}{{ $files = append $files "volcano-share-claims.yml" }}{{ end }}
{{- if .Values.web.enabled }}{{ $files = append $files "pumice-web.yml" }}{{ end }}
{{- if $chips.enabled }}{{ $files = concat $files (list "ascend-device-configmap.yml" "ascend-device-plugin.yml") }}{{ end }}
{{- if $chips.mindcluster }}{{ $files = concat $files (list "volcano-mindcluster.yml" "ascend-mindcluster-plugin.yml") }}{{ end }}
{{- range $file, $kind := include "pumice.policies" . | fromYaml }}
{{- if include "pumice.obeys" (list $ $kind) }}{{ $files = append $files $file }}{{ end }}
{{- end }}
{{- toYaml $files }}
{{- end }}

{{- /* The policies that these values ask for, with the kind that each is of. */ -}}
{{- define "pumice.policies" -}}
{{- $custom := .Values.custom }}{{ $files := dict }}
{{- if $custom.vap_enable }}
{{- range list "reserved-annotations.yml" "own-node.yml" }}{{ $_ := set $files . "ValidatingAdmissionPolicy" }}{{ end }}
{{- end }}
{{- if $custom.tenant_policies_enable }}
{{- if $custom.vap_enable }}{{ $_ := set $files "tenant-limits.yml" "ValidatingAdmissionPolicy" }}{{ end }}
{{- if $custom.map_enable }}{{ $_ := set $files "tenant-void.yml" "MutatingAdmissionPolicy" }}{{ end }}
{{- end }}
{{- toYaml $files }}
{{- end }}

{{- /* Whether the API server has policies of this kind; "yes" or nothing. Offline, where nobody can be asked, by its version. */ -}}
{{- define "pumice.obeys" -}}
{{- $root := index . 0 }}{{ $kind := index . 1 }}
{{- if lookup "v1" "Namespace" "" "kube-system" }}
{{- if $root.Capabilities.APIVersions.Has (printf "admissionregistration.k8s.io/v1/%s" $kind) }}yes{{ end }}
{{- else if semverCompare (eq $kind "MutatingAdmissionPolicy" | ternary ">=1.36.0-0" ">=1.30.0-0") $root.Capabilities.KubeVersion.Version }}yes
{{- end }}
{{- end }}

{{- /* Whether an object of these manifests is left out; "left out" or nothing. */ -}}
{{- define "pumice.leftOut" -}}
{{- $name := .object.metadata.name }}{{ $custom := .root.Values.custom }}{{ $cards := .root.Values.devicePlugin }}
{{- if and (eq .object.kind "Namespace") (eq $name .root.Release.Namespace) }}left out{{/* the release's own is there already */}}
{{- else if and (hasPrefix "volcano-scheduler" $name) (not $custom.scheduler_enable) (eq .file "volcano.yml") }}left out
{{- else if and (hasPrefix "volcano-controllers" $name) (not $custom.controller_enable) }}left out
{{- else if and (eq .file "volcano-vgpu-device-plugin.yml") (hasPrefix "volcano-device-plugin" $name) (not $cards.enabled) }}left out
{{- else if and (eq $name "volcano-vgpu-monitor") (not $cards.monitor.enabled) }}left out
{{- else if and (eq $name "volcano-vgpu-node-config") $cards.nodeConfiguration.externalConfigName }}left out
{{- end }}
{{- end }}

{{- define "pumice.adapt" -}}
{{- with .root.Values.custom.common_labels }}
{{- $_ := set $.object.metadata "labels" (merge (dict) . (default dict $.object.metadata.labels)) }}
{{- end }}
{{- if has .object.kind (list "Deployment" "DaemonSet") }}{{ include "pumice.workload" . }}
{{- else if eq .object.kind "ConfigMap" }}{{ include "pumice.configuration" . }}
{{- else if eq .object.kind "Role" }}{{ include "pumice.lease" . }}
{{- else if hasSuffix "AdmissionPolicyBinding" .object.kind }}{{ include "pumice.excluded" . }}
{{- end }}
{{- end }}

{{- /* Namespaces whose pods run the node, besides those that the manifests name. */ -}}
{{- define "pumice.excluded" -}}
{{- range $expression := dig "spec" "matchResources" "namespaceSelector" "matchExpressions" list .object }}
{{- if eq $expression.key "kubernetes.io/metadata.name" }}
{{- $_ := set $expression "values" (concat $expression.values $.root.Values.custom.policy_excluded_namespaces) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "pumice.workload" -}}
{{- $says := include "pumice.says" . | fromYaml }}
{{- $spec := .object.spec }}{{ $pod := $spec.template.spec }}{{ $container := first $pod.containers }}{{ $labels := $spec.template.metadata }}
{{- if hasKey $says "replicas" }}{{ $_ := set $spec "replicas" $says.replicas }}{{ end }}
{{- with $says.updateStrategy }}{{ $_ := set $spec "updateStrategy" . }}{{ end }}
{{- with $says.labels }}{{ $_ := set $.object.metadata "labels" (merge (dict) . (default dict $.object.metadata.labels)) }}{{ end }}
{{- range $key, $value := $says.podLabels }}
{{- if and (hasKey $spec.selector.matchLabels $key) (ne $value (get $spec.selector.matchLabels $key)) }}
{{- fail (printf "the pods of %s %s are found by their label %s: %s, and a value in podLabels would make it %s: leave %s out there" $.object.kind $.object.metadata.name $key (get $spec.selector.matchLabels $key) $value $key) }}
{{- end }}
{{- end }}
{{- with merge (dict) $labels.labels (default dict $says.podLabels) (default dict .root.Values.custom.common_labels) }}{{ $_ := set $labels "labels" . }}{{ end }}
{{- with $says.podAnnotations }}{{ $_ := set $labels "annotations" . }}{{ end }}
{{- range $key := list "tolerations" "priorityClassName" "runtimeClassName" "securityContext" }}
{{- with index $says $key }}{{ $_ := set $pod $key . }}{{ end }}
{{- end }}
{{- with $says.nodeSelector }}{{ $_ := set $pod "nodeSelector" (merge (dict) . (default dict $pod.nodeSelector)) }}{{ end }}
{{- with $says.affinity }}{{ $_ := set $pod "affinity" . }}
{{- else }}{{ if gt (int (default 1 $says.replicas)) 1 }}
{{- $apart := dict "labelSelector" (dict "matchLabels" $spec.selector.matchLabels) "topologyKey" "kubernetes.io/hostname" }}
{{- $_ := set $pod "affinity" (dict "podAntiAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" (list (dict "weight" 100 "podAffinityTerm" $apart)))) }}
{{- end }}{{ end }}
{{- with include "pumice.pullSecrets" .root | fromYamlArray }}{{ $_ := set $pod "imagePullSecrets" . }}{{ end }}
{{- with $says.nodeConfig }}{{ range $volume := $pod.volumes }}
{{- if eq $volume.name "node-config" }}{{ $_ := set $volume "configMap" (dict "name" $says.nodeConfig) }}{{ end }}
{{- end }}{{ end }}
{{- with $says.journal }}
{{- $_ := set $pod "volumes" (append (default list $pod.volumes) (merge (dict "name" "journal") .)) }}
{{- $_ := set $container "volumeMounts" (append (default list $container.volumeMounts) (dict "name" "journal" "mountPath" "/var/lib/pumice/journal")) }}
{{- end }}
{{- $_ := set $container "image" (include "pumice.image" (dict "root" .root "manifest" $container.image)) }}
{{- with .root.Values.image.pullPolicy }}{{ $_ := set $container "imagePullPolicy" . }}{{ end }}
{{- with $says.resources }}{{ $_ := set $container "resources" . }}{{ end }}
{{- with $says.containerSecurityContext }}{{ $_ := set $container "securityContext" . }}{{ end }}
{{- $_ := set $container "args" (concat (without $container.args (default "" $says.notArg)) (default list $says.args)) }}
{{- range $name, $value := $says.env }}
{{- $_ := set $container "env" (append $container.env (dict "name" $name "value" (toString $value))) }}
{{- end }}
{{- end }}

{{- define "pumice.image" -}}
{{- $image := .root.Values.image }}{{ $parts := splitList ":" .manifest }}
{{- $name := default (first $parts) $image.repository }}
{{- with default $image.registry .root.Values.global.imageRegistry }}{{ $name = printf "%s/%s" (trimSuffix "/" .) $name }}{{ end }}
{{- if $image.digest }}{{ $name }}@{{ $image.digest }}{{ else }}{{ $name }}:{{ default (last $parts) $image.tag }}{{ end }}
{{- end }}

{{- define "pumice.pullSecrets" -}}
{{- $found := list }}
{{- range concat .Values.global.imagePullSecrets .Values.image.pullSecrets }}
{{- if kindIs "map" . }}{{ $found = append $found . }}{{ else }}{{ $found = append $found (dict "name" .) }}{{ end }}
{{- end }}
{{- toYaml ($found | uniq) }}
{{- end }}
