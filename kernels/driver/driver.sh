# A bash kernel for sandboxes without one of Jupyter's. It speaks Jupyter's messages, one JSON object a line: requests on
# descriptor 3, answers on 4. The client reads stdout and stderr as they are; marks in them say where a message belongs.
# Code is sourced, not called: declare makes global variables only outside of functions. Its variables, functions and
# directory stay. Names of this file begin with __demesne, and builtin keeps functions of the code out of it.
__demesne_key=$1 __demesne_count=0 __demesne_number=0 __demesne_parent={} __demesne_busy= __demesne_why=
set --
# Children get none of these: the code runs with them closed. Bash has its own copies of descriptors from 10 on.
exec 60<&3 61>&4 62>&1 63>&2 3<&- 4>&- 5<&-
shopt -s expand_aliases; set -E

__demesne_place() { # marks the outputs, for the next message
	((++__demesne_number))
	for __demesne_fd in 62 63; do builtin printf '\0\1%s\2%08x' "$__demesne_key" "$__demesne_number" >&$__demesne_fd; done
	__demesne_meta='{"mark":'$__demesne_number',"streams":3}'
}

__demesne_send() { # TYPE CONTENT [METADATA]
	local date
	TZ=UTC0 builtin printf -v date '%(%Y-%m-%dT%H:%M:%SZ)T' -1
	builtin printf '{"header":{"msg_id":"bash-%s-%s","session":"bash-%s","username":"kernel","date":"%s","msg_type":"%s","version":"5.4"},"parent_header":%s,"metadata":%s,"content":%s}\n' \
		$$ $((++__demesne_sent)) $$ "$date" "$1" "$__demesne_parent" "${3:-{\}}" "$2" >&61
}

__demesne_quote() { # sets REPLY to a JSON string, without control characters
	REPLY=${1//\\/\\\\} REPLY=${REPLY//\"/\\\"}
	REPLY=\"${REPLY//[[:cntrl:]]/?}\"
}

__demesne_read() { # sets __demesne_raw to the JSON text of the code of a request, and __demesne_code to the code
	local LC_ALL=C rest=${1#*'"code":"'} end # patterns take a time that grows with the square of the length in other locales
	end=${rest//\\\\/xx} end=${end//\\\"/xx}
	[[ $end =~ ^[^\"]* ]]
	__demesne_raw=${rest:0:${#BASH_REMATCH}}
	rest=${__demesne_raw//\\\"/\\x22}
	LC_ALL=C.UTF-8 # for \u
	builtin printf -v __demesne_code %b "$rest"
}

__demesne_complete() { # REQUEST
	local at=${1#*'"cursor_pos":'} word all= one
	at=${at%%[!0-9]*} word=${__demesne_code:0:at}
	word=${word##*[[:space:]\;\&\|\(\<\>\=\"\'\`]}
	local -a options=(-f) # of compgen: a first word is a command, another one a file
	[[ ${__demesne_code:0:at} == *[[:space:]\;\&\|\(]*"$word" ]] || options=(-abck -A function -f)
	[[ $word == \$* ]] && options=(-v -P \$)
	while IFS= builtin read -r one; do
		[[ $one == ?(\$)__demesne* ]] || { __demesne_quote "$one"; all+=${all:+,}$REPLY; }
	done < <(builtin compgen "${options[@]}" -- "${word#\$}" | LC_ALL=C sort -u | head -n 200)
	__demesne_send complete_reply '{"status":"ok","matches":['"$all"'],"cursor_start":'$((at - ${#word}))',"cursor_end":'$at',"metadata":{}}'
}

__demesne_is_complete() {
	local said status=complete
	said=$(LC_ALL=C "$BASH" -n -c "$__demesne_code" 2>&1) || status=invalid
	case $said$'\n'$__demesne_code in *'unexpected end of file'* | *'unexpected EOF'* | *'delimited by end-of-file'* | *\\) status=incomplete ;; esac
	__demesne_send is_complete_reply '{"status":"'$status'","indent":""}'
}

__demesne_next() { # answers requests until one has code to execute; fails at the end of the requests
	local line kind
	while :; do
		IFS= builtin read -r -u 60 line || { (($? > 128)) && continue || return 1; } # a signal, or the end
		kind=${line#*'"msg_type":"'} kind=${kind%%\"*}
		__demesne_parent=${line#*'"header":'} __demesne_parent=${__demesne_parent%%\}*}\}
		__demesne_meta=
		[[ $kind == execute_request ]] && __demesne_place
		__demesne_send status '{"execution_state":"busy"}' "$__demesne_meta"
		[[ $line != *'"code":"'* ]] || __demesne_read "$line"
		case $kind in
		execute_request)
			[[ $line == *'"store_history":false'* ]] || ((++__demesne_count))
			__demesne_send execute_input '{"code":"'"$__demesne_raw"'","execution_count":'$__demesne_count'}'
			__demesne_why= __demesne_busy=1
			return ;;
		kernel_info_request)
			__demesne_send kernel_info_reply '{"status":"ok","protocol_version":"5.4","implementation":"demesne","implementation_version":"1","banner":"bash '"$BASH_VERSION"'","help_links":[],"language_info":{"name":"bash","version":"'"$BASH_VERSION"'","mimetype":"text/x-sh","file_extension":".sh"}}' ;;
		complete_request) __demesne_complete "$line" ;;
		is_complete_request) __demesne_is_complete ;;
		inspect_request) __demesne_send inspect_reply '{"status":"ok","found":false,"data":{},"metadata":{}}' ;;
		history_request) __demesne_send history_reply '{"status":"ok","history":[]}' ;;
		shutdown_request) __demesne_send shutdown_reply '{"status":"ok","restart":false}' && return 1 ;;
		esac
		__demesne_send status '{"execution_state":"idle"}'
	done
}

__demesne_end() { # STATUS: answers the execution
	local name=ExitStatus value=$1 text="exit status $1"
	case $__demesne_why in
	interrupted) name=Interrupted value='the execution was interrupted' text="Interrupted: $value" ;;
	exit*) name=SystemExit value=${__demesne_why#exit} text="exit $value" ;;
	esac
	__demesne_place
	local said='"ename":"'$name'","evalue":"'$value'","traceback":["'$text'"],"execution_count":'$__demesne_count
	if [[ $name != ExitStatus || $1 != 0 ]]; then
		__demesne_send error "{$said}" "$__demesne_meta"
		__demesne_send execute_reply '{"status":"error",'"$said}" "$__demesne_meta"
	else
		__demesne_send execute_reply '{"status":"ok","execution_count":'$__demesne_count',"payload":[],"user_expressions":{}}' "$__demesne_meta"
	fi
	__demesne_send status '{"execution_state":"idle"}'
}

# Ends the code, and leaves the shell as it is: a DEBUG trap that returns 2 returns from a function or a sourced file, so
# each level of the code returns before its next command.
__demesne_two() { return 2; }
__demesne_unwind() {
	__demesne_why=${__demesne_why:-$1}
	set -T; shopt -s extdebug
	builtin trap '[[ -z ${BASH_SOURCE-} ]] || __demesne_two' DEBUG
}
exit() {
	set -- "${1:-$?}"
	((BASH_SUBSHELL == 0)) || builtin exit "$1"
	[[ $1 == *[!0-9]* ]] && set -- 2
	__demesne_unwind "exit$(($1 & 255))"
}
builtin trap '[[ -z $__demesne_busy ]] || __demesne_unwind interrupted' INT
# set -e would end the shell after this trap.
builtin trap '__demesne_now=$?; [[ $- != *e* || $BASH_SUBSHELL != 0 ]] || { __demesne_failed=$__demesne_now; set +e; __demesne_unwind failed; }' ERR

while __demesne_next; do
	builtin source /dev/fd/64 64<<<"$__demesne_code" 60<&- 61>&- 62>&- 63>&-
	__demesne_status=$? __demesne_busy=
	builtin trap - DEBUG
	shopt -u extdebug; set +T -E
	[[ $__demesne_why != failed ]] || { __demesne_status=$__demesne_failed; set -e; }
	__demesne_end "$__demesne_status" || :
done
builtin exit 0
