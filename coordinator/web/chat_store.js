// The chats of this browser, kept in localStorage and nowhere else.

const kKey = 'shardline.chats';
const kVersion = 1;
const kTitleMax = 60;

let counter = 0;

export class ChatStore {
  constructor(storage) {
    this.storage = storage;
    this.error = '';      // Why the last save did not work.
    this.chats = [];      // Newest first.
    this.currentId = '';
    this.load();
  }

  load() {
    try {
      const saved = JSON.parse(this.storage.getItem(kKey) || 'null');
      if (saved && saved.version === kVersion && Array.isArray(saved.chats)) {
        this.chats = saved.chats.map(sound).filter(Boolean);
        this.currentId = saved.current || '';
      }
    } catch {
      this.error = 'The stored chats cannot be read; they are left alone until you save new ones.';
    }
    if (!this.current()) this.add();
  }

  current() {
    return this.chats.find((chat) => chat.id === this.currentId) || null;
  }

  add() {
    const last = this.chats[0];
    if (last && !last.messages.length) {
      this.currentId = last.id;
      return last;
    }
    const chat = {
      id: `${Date.now().toString(36)}-${(++counter).toString(36)}`, created: Date.now(), title: '',
      model: last ? last.model : '', system: '', settings: last ? {...last.settings} : {},
      messages: [],
    };
    this.chats.unshift(chat);
    this.currentId = chat.id;
    return chat;
  }

  remove(id) {
    this.chats = this.chats.filter((chat) => chat.id !== id);
    if (!this.current()) {
      if (this.chats.length) this.currentId = this.chats[0].id;
      else this.add();
    }
    this.save();
  }

  save() {
    try {
      this.storage.setItem(kKey, JSON.stringify(
        {version: kVersion, current: this.currentId, chats: this.chats.map(forDisk)}));
      this.error = '';
    } catch {
      this.error = 'This browser has no room left for chats: export and delete some.';
    }
  }

  // What a chat is called: its own title, or how it begins.
  static titleOf(chat) {
    const first = chat.messages.find((message) => message.role === 'user');
    const title = chat.title || (first ? first.content.trim().split('\n')[0] : '') || 'New chat';
    return title.length > kTitleMax ? `${title.slice(0, kTitleMax - 1)}…` : title;
  }

  // For other programs: plain messages with what was measured.
  static exportOf(chat) {
    return JSON.stringify({format: 'shardline-chat', version: kVersion,
                           exported: new Date().toISOString(), ...forDisk(chat)}, null, 2);
  }
}

function forDisk(chat) {
  return {...chat, messages: chat.messages.map((message) => {
    const {answer, ...kept} = message;
    return answer && !answer.isOver() ? {...kept, phase: 'broken', error:
      {message: 'The page was closed while this answer streamed.', code: 'page_closed'}} : kept;
  })};
}

// Storage is foreign input like any other: what has not the right shape is dropped.
function sound(chat) {
  if (!chat || typeof chat.id !== 'string' || !Array.isArray(chat.messages)) return null;
  const messages = chat.messages.filter((m) => m && ['user', 'assistant'].includes(m.role) &&
                                               typeof m.content === 'string');
  return {
    id: chat.id, created: Number(chat.created) || 0, title: String(chat.title || ''),
    model: String(chat.model || ''), system: String(chat.system || ''),
    settings: typeof chat.settings === 'object' && chat.settings ? chat.settings : {}, messages,
  };
}
