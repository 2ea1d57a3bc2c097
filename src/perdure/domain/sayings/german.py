"""Holds the German forms of what the gateway says, by their English forms."""

from typing import Final

FORMS: Final[dict[str, str]] = {
    "(Replaced by a newer message.)": "(Durch eine neuere Nachricht ersetzt.)",
    "(Stopped.)": "(Angehalten.)",
    "(The agent has answered nothing more.)": "(Mehr hat der Agent nicht geantwortet.)",
    "(The agent has answered nothing.)": "(Der Agent hat nichts geantwortet.)",
    "(The answer ends here: the model's filter has held back the rest.)": "(Die Antwort endet hier: Der Filter des Modells hat den Rest zurückgehalten.)",
    "(The answer was cut at the model's length limit. /continue goes on.)": "(Die Antwort wurde an der Längengrenze des Modells abgeschnitten. /continue setzt sie fort.)",
    "(There is no answer: the model reached its length limit before the first word. /retry asks again.)": "(Es gibt keine Antwort: Das Modell hat seine Längengrenze vor dem ersten Wort erreicht. /retry fragt noch einmal.)",
    "(There is no answer: the model's filter has held it back.)": "(Es gibt keine Antwort: Der Filter des Modells hat sie zurückgehalten.)",
    "/help lists them.": "/help zeigt alle.",
    "/retry tries again.": "/retry versucht es noch einmal.",
    "1 answer that was cut short goes on.": "Eine abgebrochene Antwort geht weiter.",
    "1 hour": "1 Stunde",
    "1 minute": "1 Minute",
    "1 second": "1 Sekunde",
    "A command cannot be changed once it was taken; give another one.": "Ein Befehl lässt sich nicht mehr ändern, wenn er angenommen ist; geben Sie einen neuen.",
    "A message needs text; what it said before stays. /undo takes a turn back.": "Eine Nachricht braucht Text; was vorher darin stand, bleibt. /undo nimmt sie zurück.",
    "An answer here was interrupted {often}, so it is given up. What was said so far is kept. {then} /resume goes back to it, and /retry then asks again.": "Eine Antwort hier wurde {often} unterbrochen und darum aufgegeben. Was bis dahin gesagt war, bleibt. {then} /resume führt dorthin zurück, und /retry fragt dann noch einmal.",
    "An edit gives no command; send it as a message of its own.": "Eine Änderung gibt keinen Befehl; senden Sie ihn als eigene Nachricht.",
    "Changed in the history. The answer given then stays; /undo or /retry if it should change.": "Im Verlauf geändert. Die Antwort von damals bleibt; /undo oder /retry ändert auch sie.",
    "Compacted: {turns}, {before:,} tokens, are now told to the model in {after:,}. Nothing is deleted; /compact off shows it everything again.": "Zusammengefasst: {turns} mit {before:,} Token liest das Modell jetzt in {after:,}. Nichts ist gelöscht; mit /compact off liest es wieder alles.",
    "Did you mean /{command}?": "Meinten Sie /{command}?",
    "I still wait for an answer to the question above. Your message is kept, and comes after it; /stop ends the wait.": "Ich warte noch auf eine Antwort auf die Frage oben. Ihre Nachricht bleibt und kommt danach; /stop beendet das Warten.",
    "It is being answered already: /stop ends that, /undo takes it back.": "Sie wird schon beantwortet: /stop beendet das, /undo nimmt sie zurück.",
    "It was answered already: /undo takes the last turn back.": "Sie ist schon beantwortet: /undo nimmt die letzte Antwort zurück.",
    "It was not going to be answered any more.": "Sie sollte nicht mehr beantwortet werden.",
    "It was sent as one with others, which wait with it: /stop removes them all.": "Sie wurde mit anderen zusammen gesendet, die mit ihr warten: /stop entfernt sie alle.",
    "Nobody has said anything here for a long time, so this is a new session. Nothing is lost: /resume brings the old one back.": "Hier hat lange niemand etwas gesagt, darum ist das eine neue Sitzung. Nichts ist verloren: /resume bringt die alte zurück.",
    "Only its author can change a message.": "Nur wer eine Nachricht geschrieben hat, kann sie ändern.",
    "Still at it, for {span} now.": "Ich bin noch dabei, seit {span}.",
    "Still at it: running {tools} and {last}, for {span}.": "Ich bin noch dabei: {tools} und {last} laufen, seit {span}.",
    "Still at it: running {tool} for {span}.": "Ich bin noch dabei: {tool} läuft seit {span}.",
    "That message never came here, so nothing was changed.": "Diese Nachricht kam hier nie an, darum wurde nichts geändert.",
    "The agent's program ended unexpectedly": "Das Programm des Agenten endete unerwartet",
    "The gateway is about to restart.": "Das Gateway startet gleich neu.",
    "The gateway is about to stop.": "Das Gateway hält gleich an.",
    "The gateway is back after a crash.": "Das Gateway ist nach einem Absturz wieder da.",
    "The gateway is back after a restart.": "Das Gateway ist nach einem Neustart wieder da.",
    "The gateway is back.": "Das Gateway ist wieder da.",
    "The gateway restarts now. Messages are answered when it is back.": "Das Gateway startet jetzt neu. Nachrichten werden beantwortet, wenn es wieder da ist.",
    "The gateway stopped unexpectedly": "Das Gateway endete unerwartet",
    "The gateway stops now.": "Das Gateway hält jetzt an.",
    "The gateway stops now. Messages are answered when it is back.": "Das Gateway hält jetzt an. Nachrichten werden beantwortet, wenn es wieder da ist.",
    "The gateway was restarted": "Das Gateway wurde neu gestartet",
    "The gateway was shut down": "Das Gateway wurde beendet",
    "The gateway was stopped": "Das Gateway wurde angehalten",
    "The job {name!r} has missed {what} ({when}), because the gateway did not run then.": "Die Aufgabe {name!r} hat {what} verpasst ({when}), weil das Gateway da nicht lief.",
    "The job {name!r} has run and {failure}.": "Die Aufgabe {name!r} ist gelaufen: {failure}.",
    "The job {name!r} is paused: {why}.": "Die Aufgabe {name!r} ist angehalten: {why}.",
    "The job {name!r} is paused: {why}. /jobs resume lets it go on.": "Die Aufgabe {name!r} ist angehalten: {why}. /jobs resume lässt sie weitergehen.",
    "The newest one is made up for now.": "Der neueste wird jetzt nachgeholt.",
    "The next message begins anew.": "Die nächste Nachricht beginnt neu.",
    "The operator finds out why with this id: {turn}": "Mit dieser Kennung findet der Betreiber den Grund: {turn}",
    "There is no answer yet: {why}. The model is still being tried, for {span} in all. /stop ends the wait.": "Noch gibt es keine Antwort: {why}. Das Modell wird weiter versucht, insgesamt {span} lang. /stop beendet das Warten.",
    "There is no command /{command}.": "Einen Befehl /{command} gibt es nicht.",
    "This conversation was interrupted too often in a row, so it begins anew here. Nothing is lost: /resume brings the old one back.": "Diese Unterhaltung wurde zu oft hintereinander unterbrochen und beginnt darum hier neu. Nichts ist verloren: /resume bringt die alte zurück.",
    "What waited is answered in a new session.": "Was wartete, wird in einer neuen Sitzung beantwortet.",
    "`perdure explain {turn}` shows more.": "`perdure explain {turn}` zeigt mehr.",
    "a minute": "einer Minute",
    "a second": "einer Sekunde",
    "an hour": "einer Stunde",
    "if the gateway is back within {span}, {goes_on}; if it is back later, {then}": "ist das Gateway innerhalb von {span} zurück, {goes_on}; ist es später zurück, {then}",
    "it goes on by itself afterwards": "geht sie danach von selbst weiter",
    "it made the same tool calls over and over, and got nowhere": "er hat dieselben Werkzeuge immer wieder aufgerufen und kam nicht weiter",
    "it took too long": "es dauerte zu lange",
    "it took too many steps": "es brauchte zu viele Schritte",
    "more than {count} runs": "mehr als {count} Läufe",
    "once": "einmal",
    "one run": "einen Lauf",
    "the agent failed": "der Agent ist gescheitert",
    "the conversation is too long for the model; /compact shortens it, /new begins another": "die Unterhaltung ist zu lang für das Modell; /compact kürzt sie, /new beginnt eine andere",
    "the model broke off before it had finished": "das Modell brach ab, bevor es fertig war",
    "the model did not answer in time": "das Modell hat nicht rechtzeitig geantwortet",
    "the model said more than one answer may hold": "das Modell hat mehr gesagt, als eine Antwort fasst",
    "the model's server cannot be reached": "der Server des Modells ist nicht zu erreichen",
    "the model's server failed, or has too much to do": "der Server des Modells ist gescheitert oder hat zu viel zu tun",
    "the model's server refused the request": "der Server des Modells hat die Anfrage abgelehnt",
    "the server that has this prompt could not be asked for its text": "der Server, der diese Vorlage hat, konnte nicht nach ihrem Text gefragt werden",
    "what was said since is answered": "wird beantwortet, was seither gesagt wurde",
    "what was said since is answered afterwards": "danach wird beantwortet, was seither gesagt wurde",
    "you will be asked afterwards whether it should go on, unless you write before": "werden Sie danach gefragt, ob sie weitergehen soll, wenn Sie nicht vorher schreiben",
    "your next message goes on from here": "mit Ihrer nächsten Nachricht geht es von hier weiter",
    "{count:,} answers that were cut short go on.": "{count:,} abgebrochene Antworten gehen weiter.",
    "{count:g} seconds": "{count:g} Sekunden",
    "{count} hours": "{count} Stunden",
    "{count} minutes": "{count} Minuten",
    "{count} runs": "{count} Läufe",
    "{count} seconds": "{count} Sekunden",
    "{count} times in a row": "{count}-mal hintereinander",
    "{first} to {last}": "{first} bis {last}",
    "{lead} An answer that does not finish in time is kept as it is; {afterwards}.": "{lead} Eine Antwort, die nicht rechtzeitig fertig wird, bleibt, wie sie ist; {afterwards}.",
    "{lead} An answer that is not finished in {wait} is given up then, because it was interrupted too often. What was said so far is kept: /resume goes back to it, and /retry then asks again.": "{lead} Eine Antwort, die innerhalb von {wait} nicht fertig wird, wird dann aufgegeben, weil sie zu oft unterbrochen wurde. Was bis dahin gesagt war, bleibt: /resume führt dorthin zurück, und /retry fragt dann noch einmal.",
    "{why}, and an answer here was cut short. Continue it, or drop it?": "{why}, und eine Antwort hier wurde abgebrochen. Fortsetzen (continue) oder verwerfen (drop)?",
    "{why}, and an answer here was cut short. That was more than {span} ago, so it does not go on by itself: your next message goes on from here, and /retry asks again.": "{why}, und eine Antwort hier wurde abgebrochen. Das ist länger als {span} her, darum geht sie nicht von selbst weiter: Mit Ihrer nächsten Nachricht geht es von hier weiter, und /retry fragt noch einmal.",
    "⚠️ The answer ends here: {why}": "⚠️ Die Antwort endet hier: {why}",
    "⚠️ There is no answer: {why}": "⚠️ Es gibt keine Antwort: {why}",
    "⚠️ {tool} was cut short, and nobody knows whether it has happened. Please look, and then say {command} happened, or {command} not: the agent is told.": "⚠️ {tool} wurde abgebrochen, und niemand weiß, ob es geschehen ist. Bitte sehen Sie nach, und sagen Sie dann {command} happened oder {command} not: Der Agent erfährt es.",
    ", last run {how}": ", letzter Lauf {how}",
    ", then {times}": ", dann {times}",
    "/jobs remove {job} takes it back.": "/jobs remove {job} nimmt es zurück.",
    "I find no time in that.": "Darin finde ich keine Zeit.",
    "I will remind you {first} ({zone}){then}: {text}": (
        "Ich erinnere Sie {first} ({zone}){then}: {text}"
    ),
    "Not taken: {why}.": "Nicht angenommen: {why}.",
    "Paused: {name}.": "Angehalten: {name}.",
    "Removed: {name}.": "Entfernt: {name}.",
    "The job will run {first} ({zone}){then}: {text}": (
        "Die Aufgabe läuft {first} ({zone}){then}: {text}"
    ),
    "There is nothing to do for {name} now.": "Für {name} ist jetzt nichts zu tun.",
    "What is to be done then? {usage}.": "Was soll dann geschehen? {usage}.",
    "You have no job {name!r}; /jobs lists them.": (
        "Eine Aufgabe {name!r} haben Sie nicht; /jobs zeigt sie."
    ),
    "You have no jobs. {usage}.": "Sie haben keine Aufgaben. {usage}.",
    "Your times are read in {zone} from now on. It is {now} there. Jobs that you have keep their zone.": (
        "Ihre Zeiten gelten von jetzt an in {zone}. Dort ist es {now}. Aufgaben, die Sie schon haben, behalten ihre Zone."
    ),
    "Your times are read in {zone}, which is the gateway's. It is {now} there.": (
        "Ihre Zeiten gelten in {zone}, der Zone des Gateways. Dort ist es {now}."
    ),
    "Your times are read in {zone}. It is {now} there.": (
        "Ihre Zeiten gelten in {zone}. Dort ist es {now}."
    ),
    "{job}  {name}: {schedule}, next {when}{why}{last}": (
        "{job}  {name}: {schedule}, nächstes Mal {when}{why}{last}"
    ),
    "{name} goes on; it runs next {when}.": "{name} geht weiter; nächstes Mal {when}.",
    "{name} runs now; the result comes here.": "{name} läuft jetzt; das Ergebnis kommt hierher.",
    "{usage}: what runs on a schedule.": "{usage}: was nach Plan läuft.",
    "… and more, which GET /api/jobs lists.": "… und mehr, die GET /api/jobs zeigt.",
    "(no title)": "(ohne Titel)",
    ", {count:,} people": ", {count:,} Personen",
    "/deny [id]: do not allow what an agent wants to do.": (
        "/deny [id]: verbietet, was ein Agent tun will."
    ),
    "/effects lists them; /effects ID happened, or /effects ID not.": (
        "/effects zeigt sie; /effects ID happened oder /effects ID not sagt, was war."
    ),
    "/grants lists what you have granted; /grants revoke ID takes it back.": (
        "/grants zeigt, was Sie erlaubt haben; /grants revoke ID nimmt es zurück."
    ),
    "/grants revoke ID takes one back.": "/grants revoke ID nimmt eine Erlaubnis zurück.",
    (
        "/memory add TEXT adds one, /memory here TEXT one for this conversation only, "
        "/memory edit N TEXT corrects one, /memory forget N or forget all erases."
    ): (
        "/memory add TEXT fügt etwas hinzu, /memory here TEXT nur für diese Unterhaltung, "
        "/memory edit N TEXT berichtigt, /memory forget N oder forget all löscht."
    ),
    "/memory does not know that word.": "Dieses Wort kennt /memory nicht.",
    "/resume and a number goes back to one.": "/resume und eine Nummer führt dorthin zurück.",
    "/resume goes back.": "/resume führt zurück.",
    "/stop stops what is running here, /stop all also what waits.": (
        "/stop hält an, was hier läuft, /stop all auch, was wartet."
    ),
    "/{command} is for operators.": "/{command} ist für Betreiber.",
    "/{command} would end or undo what is somebody else's here. It is for them, and for operators.": (
        "/{command} würde hier beenden oder zurücknehmen, was jemand anderem gehört. Das dürfen nur "
        "diese Person und Betreiber."
    ),
    "1 more message waits.": "Eine weitere Nachricht wartet.",
    "1 turn": "1 Antwort",
    "1 turn was stopped.": "Eine Antwort wurde angehalten.",
    "A branch from here.": "Ein Zweig von hier.",
    "A branch from that turn.": "Ein Zweig von dieser Antwort an.",
    "A compaction is already on its way.": "Eine Zusammenfassung ist schon unterwegs.",
    "A compaction is on its way: /stop it first.": (
        "Eine Zusammenfassung ist unterwegs: halten Sie sie zuerst mit /stop an."
    ),
    "A new session about {title}.": "Eine neue Sitzung über {title}.",
    "A new session.": "Eine neue Sitzung.",
    "An answer is on its way here. Say /continue when it is there, and cut.": (
        "Eine Antwort ist unterwegs. Sagen Sie /continue, wenn sie da ist und abbricht."
    ),
    "Answers are spoken on chat platforms, as voice messages. Here they can only be read.": (
        "Gesprochen werden Antworten auf Chat-Plattformen, als Sprachnachrichten. Hier kann man sie "
        "nur lesen."
    ),
    "Answers here are only written from now on.": (
        "Antworten werden hier von jetzt an nur geschrieben."
    ),
    "Answers here are only written.": "Antworten werden hier nur geschrieben.",
    "Answers here are spoken too, from the next one on.": (
        "Antworten werden hier ab der nächsten auch gesprochen."
    ),
    "Answers here are spoken too.": "Antworten werden hier auch gesprochen.",
    "Asking again.": "Ich frage noch einmal.",
    "Available: {names}.": "Zur Wahl: {names}.",
    "Back in session {session}{title}.": "Zurück in Sitzung {session}{title}.",
    "Brought back.": "Wiederhergestellt.",
    "Compacted once in this session: {saved:,} tokens saved": (
        "In dieser Sitzung einmal zusammengefasst: {saved:,} Token gespart"
    ),
    "Compacted {count} times in this session: {saved:,} tokens saved": (
        "In dieser Sitzung {count}-mal zusammengefasst: {saved:,} Token gespart"
    ),
    "Compacting; you will be told here. Go on meanwhile, or /stop it.": (
        "Ich fasse zusammen und sage hier Bescheid. Machen Sie inzwischen weiter, oder halten Sie "
        "es mit /stop an."
    ),
    "Context: about {count:,} tokens": "Kontext: etwa {count:,} Token",
    "Did you mean /memory {word}?": "Meinten Sie /memory {word}?",
    "Forgotten: all {count} things remembered about you, in every conversation.": (
        "Vergessen: alles, was über Sie gemerkt war ({count} Einträge), in jeder Unterhaltung."
    ),
    "Forgotten: the one thing remembered about you.": (
        "Vergessen: das Einzige, was über Sie gemerkt war."
    ),
    "From your next message on: {what}.": "Ab Ihrer nächsten Nachricht: {what}.",
    "Going on.": "Es geht weiter.",
    "Linked. What is said here continues {place} from now on. /link off ends that.": (
        "Verbunden. Was hier gesagt wird, setzt von jetzt an {place} fort. /link off beendet das."
    ),
    "No call named {name!r} waits for an approval here.": (
        "Hier wartet kein Aufruf namens {name!r} auf eine Erlaubnis."
    ),
    "No longer linked to here: {places}.": "Nicht mehr hiermit verbunden: {places}.",
    "No message here has the words: {words}": "Keine Nachricht hier enthält: {words}",
    "No message of yours has the words: {words}": "Keine Ihrer Nachrichten enthält: {words}",
    "No persona here from now on.": "Von jetzt an hier ohne Persona.",
    "No such code, or its ten minutes are over. /link in the other place gives a new one.": (
        "Diesen Code gibt es nicht, oder seine zehn Minuten sind um. /link am anderen Ort gibt einen "
        "neuen."
    ),
    (
        "Nobody knows whether these calls have happened. Look, and then say /effects ID happened, "
        "or /effects ID not:"
    ): (
        "Niemand weiß, ob diese Aufrufe geschehen sind. Sehen Sie nach, und sagen Sie dann "
        "/effects ID happened oder /effects ID not:"
    ),
    "None are configured; add [personas.NAME] with instructions to perdure.toml.": (
        "Es sind keine eingerichtet; [personas.NAME] mit Anweisungen gehört in perdure.toml."
    ),
    "Not everything is in the index yet; ask again in a moment.": (
        "Noch ist nicht alles im Verzeichnis; fragen Sie gleich noch einmal."
    ),
    "Noted: {tool} has happened.": "Notiert: {tool} ist geschehen.",
    "Noted: {tool} has not happened.": "Notiert: {tool} ist nicht geschehen.",
    "Nothing has happened here yet.": "Hier ist noch nichts geschehen.",
    "Nothing is before it: answering now.": "Nichts ist davor: Ich antworte jetzt.",
    "Nothing is compacted here.": "Hier ist nichts zusammengefasst.",
    "Nothing is linked here. /link gives a code for that.": (
        "Hier ist nichts verbunden. /link gibt einen Code dafür."
    ),
    "Nothing is remembered about you, so there is nothing to forget.": (
        "Über Sie ist nichts gemerkt, also gibt es nichts zu vergessen."
    ),
    "Nothing is remembered about you.": "Über Sie ist nichts gemerkt.",
    "Nothing is remembered about you. /memory add TEXT adds something.": (
        "Über Sie ist nichts gemerkt. /memory add TEXT fügt etwas hinzu."
    ),
    "Nothing is running here.": "Hier läuft nichts.",
    "Nothing to continue: the last answer here was not cut. /retry asks again.": (
        "Nichts fortzusetzen: Die letzte Antwort hier ist nicht abgebrochen. /retry fragt noch "
        "einmal."
    ),
    "Nothing to redo.": "Nichts wiederherzustellen.",
    "Nothing to retry.": "Nichts zu wiederholen.",
    "Nothing to retry: the last thing here was sent from elsewhere. /undo takes it back.": (
        "Nichts zu wiederholen: Das Letzte hier wurde von anderswo geschickt. /undo nimmt es zurück."
    ),
    "Nothing to undo.": "Nichts zurückzunehmen.",
    "Nothing waits for an approval here.": "Hier wartet nichts auf eine Erlaubnis.",
    "Number {number} is corrected.": "Nummer {number} ist berichtigt.",
    "Number {number} is forgotten. Those after it have moved up.": (
        "Nummer {number} ist vergessen. Die danach sind aufgerückt."
    ),
    "Only private places can be linked: in a group others would speak for you.": (
        "Nur private Orte lassen sich verbinden: In einer Gruppe würden andere für Sie sprechen."
    ),
    "Only the id of a turn may follow /retry. /edit takes other words.": (
        "Nach /retry darf nur die Kennung einer Antwort stehen. /edit nimmt andere Worte."
    ),
    "Passed on.": "Weitergegeben.",
    "Persona here from now on: {name}.": "Persona hier von jetzt an: {name}.",
    "Persona stays {name}, as /persona chose.": "Die Persona bleibt {name}, wie /persona es wählte.",
    "Persona here: {name}. {offered}": "Persona hier: {name}. {offered}",
    "Prompts of its tool servers, which you call by these words:": (
        "Vorlagen seiner Werkzeug-Server, die Sie mit diesen Worten aufrufen:"
    ),
    "Queued; {count} before it.": "Eingereiht; davor: {count}.",
    "Remembered, everywhere. /memory shows what is.": (
        "Gemerkt, überall. /memory zeigt, was gemerkt ist."
    ),
    "Remembered, in this conversation. /memory shows what is.": (
        "Gemerkt, in dieser Unterhaltung. /memory zeigt, was gemerkt ist."
    ),
    "Restarting: what runs is finished first. You will be told here.": (
        "Neustart: Was läuft, wird erst beendet. Ich sage hier Bescheid."
    ),
    "Say /voice on or /voice off.": "Sagen Sie /voice on oder /voice off.",
    "Say how much: {offered}.": "Sagen Sie, wie viel: {offered}.",
    "Say which one by its number in /memory: {usage}.": (
        "Sagen Sie mit der Nummer aus /memory, was Sie meinen: {usage}."
    ),
    "Stopped {count} turns.": "{count} Antworten angehalten.",
    "Stopped.": "Angehalten.",
    "Taken back: {what}. You will be asked again.": (
        "Zurückgenommen: {what}. Sie werden wieder gefragt."
    ),
    "That code was given out here. Say it in the place that is to go on with this.": (
        "Dieser Code stammt von hier. Sagen Sie ihn an dem Ort, der hiermit weitermachen soll."
    ),
    "That session is the one you are in.": "In dieser Sitzung sind Sie schon.",
    "The agent is told with the next message.": "Der Agent erfährt es mit der nächsten Nachricht.",
    (
        "The code is {code}, for ten minutes and one use. Say /link {code} in another private place "
        "of yours: what is said there then continues this conversation."
    ): (
        "Der Code ist {code}; er gilt zehn Minuten und einmal. Sagen Sie /link {code} an einem "
        "anderen privaten Ort von Ihnen: Was dort gesagt wird, setzt dann diese Unterhaltung fort."
    ),
    "The model reads those turns in full again.": (
        "Das Modell liest diese Nachrichten wieder ganz."
    ),
    "The new words are missing. {usage}": "Die neuen Worte fehlen. {usage}",
    "There is no agent {name!r}. {offered}": "Einen Agenten {name!r} gibt es nicht. {offered}",
    "There is no call whose effect is unknown.": (
        "Es gibt keinen Aufruf, dessen Wirkung unbekannt ist."
    ),
    "There is no earlier session here.": "Hier gibt es keine frühere Sitzung.",
    "There is no number {number}, {there}. /memory lists them.": (
        "Nummer {number} gibt es nicht, {there}. /memory zeigt sie."
    ),
    "There is no other session {name} here.": "Eine andere Sitzung {name} gibt es hier nicht.",
    "There is no persona {name!r}. {offered}": "Eine Persona {name!r} gibt es nicht. {offered}",
    "There is no turn {turn} here that is over.": (
        "Hier gibt es keine abgeschlossene Antwort {turn}."
    ),
    (
        "There is no turn {turn} on the way to here. Only one of the last {count:,} can be asked "
        "again; it may have been undone."
    ): (
        "Auf dem Weg hierher gibt es {turn} nicht. Nur eine der letzten {count:,} Nachrichten kann "
        "noch einmal gefragt werden; vielleicht wurde sie zurückgenommen."
    ),
    "There is nobody to speak: add [speech] with the url of a speech server to perdure.toml.": (
        "Niemand kann sprechen: [speech] mit der url eines Sprach-Servers gehört in perdure.toml."
    ),
    "There is nothing in that title that could be shown.": (
        "In diesem Titel ist nichts, was man zeigen könnte."
    ),
    "There is nothing to compact yet.": "Es gibt noch nichts zusammenzufassen.",
    "Thinking stays {how}, as /think set it.": "Das Nachdenken bleibt {how}, wie /think es setzte.",
    "Thinking as the model does. {offered}": "Nachdenken, wie das Modell es tut. {offered}",
    "Thinking {how}, as configured. {offered}": "Nachdenken {how}, wie eingerichtet. {offered}",
    "Thinking {how}, chosen with /think. {offered}": (
        "Nachdenken {how}, mit /think gewählt. {offered}"
    ),
    "This conversation in all{by}: {spent}": "Diese Unterhaltung insgesamt{by}: {spent}",
    "This conversation today{by}: {spent}": "Diese Unterhaltung heute{by}: {spent}",
    "This is your home conversation now.": "Das ist jetzt Ihre Heim-Unterhaltung.",
    "This place has its own conversation again.": (
        "Dieser Ort hat wieder seine eigene Unterhaltung."
    ),
    "This session has no title yet.": "Diese Sitzung hat noch keinen Titel.",
    "This session is now called: {title}": "Diese Sitzung heißt jetzt: {title}",
    "Too many wrong codes. Try again in an hour.": (
        "Zu viele falsche Codes. Versuchen Sie es in einer Stunde wieder."
    ),
    "Undone, {count} turns:\n\n{words}": "{count} Antworten zurückgenommen:\n\n{words}",
    "Undone:\n\n{words}": "Zurückgenommen:\n\n{words}",
    "What is said here continues {place}. /link off ends that.": (
        "Was hier gesagt wird, setzt {place} fort. /link off beendet das."
    ),
    "What was running is stopped; /retry asks again.": (
        "Was lief, ist angehalten; /retry fragt noch einmal."
    ),
    "What {name} may do here:": "Was {name} hier darf:",
    "Working on it in the background beside what is running. The result comes here.": (
        "Ich arbeite im Hintergrund daran, neben dem, was läuft. Das Ergebnis kommt hierher."
    ),
    "Working on it in the background. The result comes here.": (
        "Ich arbeite im Hintergrund daran. Das Ergebnis kommt hierher."
    ),
    "You are {name} ({role}).": "Sie sind {name} ({role}).",
    "You have granted nothing beyond single calls.": (
        "Sie haben nichts über einzelne Aufrufe hinaus erlaubt."
    ),
    "You have no grant {name!r}; /grants lists them.": (
        "Eine Erlaubnis {name!r} haben Sie nicht gegeben; /grants zeigt sie."
    ),
    "You have no such call {name!r}; /effects lists them.": (
        "Einen solchen Aufruf {name!r} haben Sie nicht; /effects zeigt sie."
    ),
    "You in all: {spent}": "Sie insgesamt: {spent}",
    "You today: {spent}": "Sie heute: {spent}",
    "about {count:,} tokens of context": "etwa {count:,} Token Kontext",
    "about {count:,} tokens of context, {share:.0%} of the {window:,} that the model takes": (
        "etwa {count:,} Token Kontext, {share:.0%} der {window:,}, die das Modell fasst"
    ),
    "agent {name}": "Agent {name}",
    "cost {money}": "Kosten {money}",
    "cost {money} (price of {count:,} tokens unknown)": (
        "Kosten {money} (Preis von {count:,} Token unbekannt)"
    ),
    "here": "hier",
    "only number 1": "nur Nummer 1",
    "1 to {count}": "1 bis {count}",
    "none": "keine",
    "nothing": "nichts",
    "persona {name}": "Persona {name}",
    "price unknown": "Preis unbekannt",
    "thinking as the model does": "Nachdenken, wie das Modell es tut",
    "thinking {how}, as configured": "Nachdenken {how}, wie eingerichtet",
    "thinking {how}, chosen with /think": "Nachdenken {how}, mit /think gewählt",
    "{count:,} turns": "{count:,} Antworten",
    "{count} calls wait for an approval; say which one:\n{calls}": (
        "{count} Aufrufe warten auf eine Erlaubnis; sagen Sie, welchen Sie meinen:\n{calls}"
    ),
    "{count} in the background; /stop all stops that too": (
        "{count} im Hintergrund; /stop all hält auch das an"
    ),
    "{count} more for other conversations only; /memory there.": (
        "{count} weitere nur für andere Unterhaltungen; /memory dort zeigt sie."
    ),
    "{count} more messages wait.": "{count} weitere Nachrichten warten.",
    "{count} turns were stopped.": "{count} Antworten wurden angehalten.",
    "{name} answers here from now on.": "Von jetzt an antwortet hier {name}.",
    "{name} answers here from now on, as configured.": (
        "Von jetzt an antwortet hier {name}, wie eingerichtet."
    ),
    "{name} answers here.": "Hier antwortet {name}.",
    "{name} answers here. It was chosen with /agent; /agent default goes back to {other}.": (
        "Hier antwortet {name}, mit /agent gewählt; /agent default kehrt zu {other} zurück."
    ),
    "{name} answers here: {chosen} was chosen, and is gone.": (
        "Hier antwortet {name}: {chosen} war gewählt und ist nicht mehr da."
    ),
    "{name} still answers, as /agent chose.": "Es antwortet weiter {name}, wie /agent es wählte.",
    "{name}, as configured for this place": "{name}, wie für diesen Ort eingerichtet",
    "{name} has no tools.": "{name} hat keine Werkzeuge.",
    "{number}. {text} (here only)": "{number}. {text} (nur hier)",
    "{number}. {title}  {session}, {count} events, {state}": (
        "{number}. {title}  {session}, {count} Ereignisse, {state}"
    ),
    "{places}: linked to here already. /link off ends that.": (
        "{places}: schon hiermit verbunden. /link off beendet das."
    ),
    (
        "{places}: linked to here, so this cannot be linked on. /link here and say that code there "
        "instead, or /link off first."
    ): (
        "{places}: hiermit verbunden, darum lässt sich das nicht weiter verbinden. Sagen Sie hier "
        "/link und den Code dort, oder zuerst /link off."
    ),
    "{place} has ended the link. This place has its own conversation again.": (
        "{place} hat die Verbindung beendet. Dieser Ort hat wieder seine eigene Unterhaltung."
    ),
    (
        "{place} is linked to this conversation now, with a code that was given out here. What is "
        "said there is part of it. /link off ends that, there or here."
    ): (
        "{place} ist jetzt mit dieser Unterhaltung verbunden, durch einen Code von hier. Was dort "
        "gesagt wird, gehört dazu. /link off beendet das, dort oder hier."
    ),
    "{place} is no longer linked to this conversation.": (
        "{place} ist nicht mehr mit dieser Unterhaltung verbunden."
    ),
    "{state}, {count} waiting; session {session}": "{state}, {count} wartend; Sitzung {session}",
    "{turns}, {read:,} tokens in ({cached:.0%} cached), {wrote:,} out, {cost}": (
        "{turns}, {read:,} Token gelesen ({cached:.0%} aus dem Zwischenspeicher), {wrote:,} "
        "geschrieben, {cost}"
    ),
    "{usage}: allow what an agent wants to do.": "{usage}: erlaubt, was ein Agent tun will.",
    "… and older ones, which GET /api/grants lists.": ("… und ältere, die GET /api/grants zeigt."),
}
