{{- /*
cairn.pod: a pod template with the sidecar of its agents, as components/agent adds it with kustomize, for a chart of jobs that
depends on this one. It takes a list: the pod template, the field that has the pod's number, and the scope of this chart.

  template:
    {{- include "cairn.pod" (list $template "metadata.labels['batch.kubernetes.io/job-completion-index']" .Subcharts.cairn) | nindent 4 }}
*/}}
{{- define "cairn.pod" -}}
{{- $pod := deepCopy (index . 0) }}
{{- $values := (index . 2).Values }}
{{- $ops := (index . 2).Files.Get "manifests/pod.yaml" | replace "NUMBER" (index . 1) | fromYamlArray }}
{{- range $op := $ops }}
  {{- $keys := splitList "/" (trimPrefix "/" $op.path) }}
  {{- $last := last $keys }}
  {{- $at := $pod }}
  {{- $owner := dict }}
  {{- $name := "" }}
  {{- range $key := initial $keys }}
    {{- $owner = $at }}
    {{- $name = $key }}
    {{- if kindIs "slice" $at }}
      {{- $at = index $at (int $key) }}
    {{- else }}
      {{- if not (hasKey $at $key) }}
        {{- $_ := set $at $key (ternary (dict) (list) (eq $key "securityContext")) }}
      {{- end }}
      {{- $at = get $at $key }}
    {{- end }}
  {{- end }}
  {{- if eq $last "-" }}
    {{- $_ := set $owner $name (append $at $op.value) }}
  {{- else if eq $last "0" }}
    {{- $_ := set $owner $name (prepend $at $op.value) }}
  {{- else }}
    {{- $_ := set $at $last $op.value }}
  {{- end }}
{{- end }}
{{- $_ := set $pod.spec "terminationGracePeriodSeconds" (int $values.sidecar.gracePeriodSeconds) }}
{{- $sidecar := first $pod.spec.initContainers }}
{{- include "cairn.settings" (list $sidecar $pod.spec $values) }}
{{- range $variable := $sidecar.env }}
  {{- if eq $variable.name "CAIRN_ALLOW_UID" }}{{ $_ := set $variable "value" (toString $values.sidecar.allowUid) }}{{ end }}
{{- end }}
{{- with $values.sidecar.resources }}{{ $_ := set $sidecar "resources" . }}{{ end }}
{{- toYaml $pod }}
{{- end }}

{{- /*
cairn.settings: puts image, token, root and settings of the values into a container and its pod's specification.
*/}}
{{- define "cairn.settings" -}}
{{- $container := index . 0 }}
{{- $spec := index . 1 }}
{{- $values := index . 2 }}
{{- $_ := set $container "image" (printf "%s:%s" $values.image.repository (toString $values.image.tag)) }}
{{- $variables := list }}
{{- range $variable := $container.env }}
  {{- if and $values.root (eq $variable.name "CAIRN_ROOT") }}{{ $variable = dict "name" "CAIRN_ROOT" "value" $values.root }}{{ end }}
  {{- $variables = append $variables $variable }}
{{- end }}
{{- /* The page asks the coordinator, and reads no storage. */}}
{{- if ne $container.name "page" }}
  {{- range $name, $value := $values.storage.env }}
    {{- $variables = append $variables (dict "name" $name "value" (toString $value)) }}
  {{- end }}
  {{- with $values.storage.envFrom }}{{ $_ := set $container "envFrom" . }}{{ end }}
  {{- with $values.storage.serviceAccountName }}{{ $_ := set $spec "serviceAccountName" . }}{{ end }}
{{- end }}
{{- $_ := set $container "env" $variables }}
{{- $volumes := list }}
{{- $removed := "" }}
{{- range $volume := $spec.volumes }}
  {{- if and $values.root (hasKey $volume "persistentVolumeClaim") (eq (dig "persistentVolumeClaim" "claimName" "" $volume) "cairn-checkpoints") }}
    {{- $removed = $volume.name }}
  {{- else }}
    {{- if eq (dig "secret" "secretName" "" $volume) "cairn-token" }}{{ $_ := set $volume.secret "secretName" $values.tokenSecret }}{{ end }}
    {{- if eq (dig "secret" "secretName" "" $volume) "cairn-page-token" }}{{ $_ := set $volume.secret "secretName" $values.page.tokenSecret }}{{ end }}
    {{- $volumes = append $volumes $volume }}
  {{- end }}
{{- end }}
{{- $_ := set $spec "volumes" $volumes }}
{{- $mounts := list }}
{{- range $mount := $container.volumeMounts }}
  {{- if ne $mount.name $removed }}{{ $mounts = append $mounts $mount }}{{ end }}
{{- end }}
{{- $_ := set $container "volumeMounts" $mounts }}
{{- end }}
